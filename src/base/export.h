/* SPDX-License-Identifier: MIT */
/* Functions of the adapter that another of our libraries calls: front/libibverbs.map, node ANYRDMA_PRIVATE.
 */
#ifndef BASE_EXPORT_H
#define BASE_EXPORT_H

#define EXPORTED __attribute__((visibility("default")))

#endif
