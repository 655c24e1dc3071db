#!/bin/bash
# SPDX-License-Identifier: MIT
# user.sh WORLD: an ordinary user, without capabilities, without HOME, in a directory it cannot write to.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"
as_ordinary_user

powerless() {
	[ "$("${IDENTITY[@]}" sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)" = 0000000000000000 ] ||
		fail "the program would have capabilities"
	! "${IDENTITY[@]}" touch probe 2>/dev/null || fail "the program could write to its directory"
}

powerless
pair 4 ibv_rc_pingpong -c
pair 6 ibv_rc_pingpong -c -e
pair 4 ibv_ud_pingpong -c
pair 4 ib_write_bw -F -n 100
pair 6 ib_read_lat -F -n 100
pair 4 ib_send_lat -F -n 100 -e
done_testing
