/* SPDX-License-Identifier: MIT */
/* The files that our regions lie in, each once, with the number that it has on the export. */
#ifndef LOCAL_EXPORT_FILES_H
#define LOCAL_EXPORT_FILES_H

#include "local/export/export.h"
#include "local/pages/shareable.h"

/* The caller's lock, for all of it. */
struct local_files {
	struct {
		struct shared_file file;
		unsigned users; /* 0: free */
	} place[EXPORT_FILES];
};

/* The number of a file, as in local_export_key.file, with a reference; 0: there are too many. */
uint16_t local_files_get(struct local_files *files, struct local_exporter *x, const struct shared_file *f);
/* Gives it back; 0 is fine. */
void local_files_put(struct local_files *files, struct local_exporter *x, uint16_t number);
/* Exports all of them, to a table that is new. */
void local_files_export(const struct local_files *files, struct local_exporter *x);

#endif
