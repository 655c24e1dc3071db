/* SPDX-License-Identifier: MIT */
/* For cmocka's programs: a case that this machine or build cannot run says why (tests/run tells it). */
#ifndef TESTS_SKIP_H
#define TESTS_SKIP_H

#define skip_because(why)                                                                                    \
	do {                                                                                                 \
		print_message("SKIP  %s\n", why);                                                            \
		skip();                                                                                      \
	} while (0)

/* What a case leaves out that goes on. */
#define skip_part(why) print_message("SKIP  part: %s\n", why)

#endif
