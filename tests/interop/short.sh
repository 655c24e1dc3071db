#!/bin/bash
# SPDX-License-Identifier: MIT
# short.sh MTU: a little of everything, with Linux's own RoCE at the other end; first the kernel calls, then it serves.
# The scripts of tests/clients/ have the rest, in the worlds rxe-*.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
# shellcheck source=tests/clients/cm.sh
. "$HERE/cm.sh"
enter "rxe-calls-$1" "$@"

pingpongs() {
	pair 4 ibv_rc_pingpong -c -s 10001 -n 50
	pair 6 ibv_rc_pingpong -c -s 3 -e -n 50
	pair 4 ibv_srq_pingpong -c -s 4099 -n 50
	pair 6 ibv_uc_pingpong -c -s 5003 -n 50
	pair 4 ibv_ud_pingpong -c -s 1022 -n 50
}

measurements() {
	pair 6 ib_send_bw -F -s 10001 -n 20
	pair 4 ib_write_bw -F -s 100002 -n 20
	pair 6 ib_read_bw -F -s 100003 -n 20
	pair 4 ib_atomic_bw -F -n 20
}

by_address() {
	ping 4
	ping 6 -S 60000
	connected 6 -c 3
	datagrams 4
	group 4 239.7.7.4
	measure ib_send_bw -s 5001
	measure ib_read_bw -s 5001
}

everything() {
	pingpongs
	measurements
	by_address
}

say "-- Linux calls"
everything
swap_sides
say "-- Linux serves"
everything
done_testing
