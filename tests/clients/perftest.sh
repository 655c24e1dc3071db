#!/bin/bash
# SPDX-License-Identifier: MIT
# perftest.sh WORLD: the measuring programs, each operation, connection type and mode they offer.
#
# Numbers are not judged here. perftest refuses -e with WRITE, and wants at least 5 iterations. What is
# unreliable (UC, UD) stays within a receiver's queue and socket: nothing there may be lost, or the receiver
# would wait for ever.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
PATIENCE=$((PATIENCE * 4)) # a busy machine disturbs the clock's measurement
enter "$1" "$@"
learn_gids

RUN=(-F -n 20)
ALL=(-a)
[ -z "$GUEST" ] || ALL=(-s 100003) # a guest is slow; tests/interop/across.sh has the lengths

# measure FAMILY PROGRAM ARGS...
measure() {
	local family=$1 program=$2
	shift 2
	pair "$family" "$program" "${RUN[@]}" "$@"
}

# every_size: each size of -a costs half a second, in which perftest measures the clock. So not in the world of every run.
every_size() {
	local operation
	case $WORLD in
	loopback) measure 4 ib_send_lat "${ALL[@]}" ;;
	*9000)
		measure 4 ib_write_bw "${ALL[@]}"
		measure 6 ib_read_bw "${ALL[@]}" -b
		;;
	esac
	for operation in send write read; do
		measure 6 "ib_${operation}_bw" -s 100003 -b
		measure 4 "ib_${operation}_lat" -s 100003
		measure 6 "ib_${operation}_lat" -s 2
	done
}

sleeping() {
	local operation
	for operation in send read; do
		measure 4 "ib_${operation}_bw" -e
		measure 4 "ib_${operation}_bw" -e -b
		measure 6 "ib_${operation}_lat" -e
	done
	measure 4 ib_atomic_bw -e
	measure 4 ib_atomic_lat -e
}

atomics() {
	local kind
	for kind in FETCH_AND_ADD CMP_AND_SWAP; do
		measure 4 ib_atomic_bw -A $kind
		measure 6 ib_atomic_lat -A $kind
	done
	measure 4 ib_atomic_bw -b
}

many_queue_pairs() {
	local operation
	for operation in send write read atomic; do
		measure 4 "ib_${operation}_bw" -q 8
	done
	measure 6 ib_write_bw -q 8 -b
	measure 4 ib_send_bw -q 8 -e
	measure 4 ib_send_bw --use-srq -q 4
}

unreliable_connected() {
	local size
	for size in 2 4096 65536; do
		measure 4 ib_send_lat -c UC -s $size
		measure 4 ib_write_lat -c UC -s $size
	done
	measure 4 ib_send_bw -c UC -s 4096
	measure 6 ib_send_bw -c UC -s 4096 -e
	measure 4 ib_write_bw -c UC -s 4096
	measure 6 ib_write_bw -c UC -s 4096 -b
}

unreliable_datagrams() {
	measure 4 ib_send_lat -c UD -s 1000
	measure 6 ib_send_lat -c UD -e -s 512
	measure 4 ib_send_bw -c UD -s 1024
	measure 6 ib_send_bw -c UD -s 1024 -e
	measure 4 ib_send_bw -c UD -s 256 -b
	measure 4 ib_send_bw -c UD -s 256 -q 8
}

# at_once: four pairs of different kinds share the port.
at_once() {
	local operation
	for operation in send write read atomic; do
		start_pair "at_once_$operation" 4 "ib_${operation}_bw" -F -n 200
	done
	for operation in send write read atomic; do
		finish_pair "at_once_$operation" "ib_${operation}_bw, four pairs at once"
	done
}

every_size
unreliable_connected
unreliable_datagrams
if [ "$WORLD" != veth-9000 ]; then # nothing in these depends on the size of packets
	many_queue_pairs
	sleeping
	atomics
	at_once
fi
done_testing
