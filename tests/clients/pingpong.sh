#!/bin/bash
# SPDX-License-Identifier: MIT
# pingpong.sh WORLD: the example programs of rdma-core, polling and sleeping, contents checked.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"
learn_gids

SIZES=(1 17 1023 4096 65536 1048576)

# all_sizes FAMILY PROGRAM ARGS...
all_sizes() {
	local size
	for size in "${SIZES[@]}"; do
		# A stranger does not say how much it can take in one go, and UC does not ask again.
		[ "$GUEST $2 $size" != "${GUEST:-none} ibv_uc_pingpong 1048576" ] || continue
		pair "$@" -c -s "$size" -n 20
	done
}

# unreliable_datagrams FAMILY ARGS...: a message is at most one packet.
unreliable_datagrams() {
	local size family=$1
	shift
	for size in 1 17 1023 "$(active_mtu)"; do
		pair "$family" ibv_ud_pingpong "$@" -c -s "$size" -n 50
	done
}

for family in 4 6; do
	for sleeping in "" -e; do
		for program in ibv_rc_pingpong ibv_uc_pingpong ibv_srq_pingpong; do
			all_sizes "$family" "$program" $sleeping
		done
		unreliable_datagrams "$family" $sleeping
	done
	for mtu in 256 512 1024 2048 4096; do
		[ -z "$GUEST" ] || [ "$mtu" -le "$(active_mtu)" ] || continue # fragments are between our own only
		pair "$family" ibv_rc_pingpong -c -m "$mtu" -s 100000 -n 20
		pair "$family" ibv_uc_pingpong -c -m "$mtu" -s 20000 -n 20
		pair "$family" ibv_srq_pingpong -c -m "$mtu" -s 20000 -n 20
	done
	pair "$family" ibv_rc_pingpong # as a newcomer types it: defaults, contents not checked
	pair "$family" ibv_rc_pingpong -c -N -n 100
	[ -n "$GUEST" ] || pair "$family" ibv_rc_pingpong -t -n 100 # rxe has no time stamps
	pair "$family" ibv_srq_pingpong -c -q 4 -n 100
done
done_testing
