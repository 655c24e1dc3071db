/* SPDX-License-Identifier: MIT */
#include "local/export/files.h"

static bool same_file(const struct shared_file *a, const struct shared_file *b)
{
	return a->dev == b->dev && a->inode == b->inode && a->fd == b->fd;
}

/* The place that it has or gets; -1: all are taken. */
static int place_of(const struct local_files *files, const struct shared_file *f)
{
	int place = -1;

	for (int i = 0; i < EXPORT_FILES; i++) {
		if (files->place[i].users && same_file(&files->place[i].file, f))
			return i;
		if (place < 0 && !files->place[i].users)
			place = i;
	}
	return place;
}

uint16_t local_files_get(struct local_files *files, struct local_exporter *x, const struct shared_file *f)
{
	int i = place_of(files, f);

	if (i < 0)
		return 0;
	if (!files->place[i].users++) {
		files->place[i].file = *f;
		local_export_set_file(x, (unsigned)i, f);
	}
	return (uint16_t)(i + 1);
}

void local_files_put(struct local_files *files, struct local_exporter *x, uint16_t number)
{
	if (number && !--files->place[number - 1].users)
		local_export_set_file(x, number - 1u, NULL);
}

void local_files_export(const struct local_files *files, struct local_exporter *x)
{
	for (unsigned i = 0; i < EXPORT_FILES; i++) {
		if (files->place[i].users)
			local_export_set_file(x, i, &files->place[i].file);
	}
}
