/* SPDX-License-Identifier: MIT */
/*
 * An intrusive doubly linked list. A node that is on no list points to itself. Forward, the links are whole
 * at any moment: a child of fork() can follow them, whatever another thread was doing in the parent.
 */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

struct list {
	struct list *next, *prev;
};

static inline void list_init(struct list *l)
{
	l->next = l->prev = l;
}

static inline bool list_empty(const struct list *l)
{
	return l->next == l;
}

static inline void list_add_tail(struct list *head, struct list *node)
{
	node->prev = head->prev;
	node->next = head;
	__atomic_store_n(&head->prev->next, node, __ATOMIC_RELEASE);
	head->prev = node;
}

/* list_del takes the node off whatever list it is on; harmless when it is on none. */
static inline void list_del(struct list *node)
{
	__atomic_store_n(&node->prev->next, node->next, __ATOMIC_RELEASE);
	node->next->prev = node->prev;
	list_init(node);
}

static inline struct list *list_pop(struct list *head)
{
	struct list *node = head->next;

	if (node == head)
		return NULL;
	list_del(node);
	return node;
}

/* list_take moves all nodes of `from` to the empty list `to`. */
static inline void list_take(struct list *to, struct list *from)
{
	if (list_empty(from)) {
		list_init(to);
		return;
	}
	to->next = from->next;
	to->prev = from->prev;
	to->next->prev = to;
	to->prev->next = to;
	list_init(from);
}

#define list_for_each(pos, head) for (struct list *pos = (head)->next; pos != (head); pos = pos->next)
#define list_for_each_safe(pos, head)                                                                        \
	for (struct list *pos = (head)->next, *pos##_next = pos->next; pos != (head);                        \
		pos = pos##_next, pos##_next = pos->next)

#endif
