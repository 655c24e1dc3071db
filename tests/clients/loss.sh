#!/bin/bash
# SPDX-License-Identifier: MIT
# loss.sh [WORLD [MTU [more]]]: strangers' programs over a wire that loses, doubles and swaps packets; more: over wires that only
# lose them, few and many. They must end, without an error, with the right bytes. How fast is not judged here.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/cm.sh
. "$HERE/cm.sh"
[ -w /dev/net/tun ] || skip "needs /dev/net/tun"
WIRE=$ANYRDMA_BUILD/tests/clients/lossy_wire
MTU=${2:-9000}
enter "${1:-lossy}" "$@"

LARGE=(-s 1048576 -n 200) MANY=500
# rxe goes back to the first that is missing, for each that is lost or swapped: ten packets for one.
[ -z "$GUEST" ] || LARGE=(-s 100003 -n 200) MANY=200

# checked FRAMES PAIR...: contents checked. These programs leave with their last completion: should the last
# acknowledge be lost, the other end talks to nobody and rightly gets an error. So the wire is bad for fewer
# frames than the data alone has, and good at the end.
checked() {
	lossy_wire "$MTU" "${HARM[@]}" "frames=$1"
	learn_gids
	pair "${@:2}"
}

PATIENT=(-F -u 16) # perftest's own 0.5 s of retries are less than a busy machine may keep a peer from running

# by_address: what connects by address, with Linux at the other end.
by_address() {
	ping 4
	connected 6 -c 3
	stream 4 rstream -T v -S 4096 -C 100
	measure ib_send_bw -u 16 -s 5001
	measure ib_read_bw -u 16 -s 5001
}

# on_wire HARM...: everything over a wire of this kind. The measuring programs part by TCP: bad to the end.
on_wire() {
	local operation
	HARM=("$@")
	say "-- $*"
	checked 10000 4 ibv_rc_pingpong -c -s 65536 -n 100
	checked 6000 6 ibv_rc_pingpong -c -e -s 4096 -n 1000
	checked 6000 4 ibv_srq_pingpong -c -s 4096 -n 1000
	lossy_wire "$MTU" "${HARM[@]}"
	learn_gids
	for operation in write send read; do
		pair 4 "ib_${operation}_bw" "${PATIENT[@]}" "${LARGE[@]}"
		pair 6 "ib_${operation}_lat" "${PATIENT[@]}" -s 4096 -n 200
	done
	pair 4 ib_atomic_bw "${PATIENT[@]}" -n 500
	pair 4 ib_write_bw "${PATIENT[@]}" -s 65536 -n "$MANY" -q 4 -b
	[ -z "$GUEST" ] || by_address
}

if [ "${3:-}" = more ]; then
	on_wire loss=10
	on_wire loss=50
else
	on_wire loss=10 double=20 swap=20
fi
if [ -n "$GUEST" ]; then
	swap_sides
	on_wire loss=10 double=20 swap=20
fi
done_testing
