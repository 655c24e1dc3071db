/* SPDX-License-Identifier: MIT */
/* Shareable memory for the demo's programs: a file for each end, in memory where there is such a file system.
 */
#ifndef TOOL_DEMO_BUFFERS_H
#define TOOL_DEMO_BUFFERS_H

#include <stdbool.h>

/* Makes them; 0, or -errno and nothing is left. */
int demo_buffers_make(void);
/* Removes them, if there are any. */
void demo_buffers_remove(void);
/* The path of an end's. */
const char *demo_buffer(bool client);

#endif
