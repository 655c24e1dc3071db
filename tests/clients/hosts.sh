#!/bin/bash
# SPDX-License-Identifier: MIT
# hosts.sh WORLD [pingpong|perftest]: strangers' programs on two hosts of a fabric, by LID, with OpenSM as the
# manager: through one switch and through three. Contents are checked by the programs that can. In the world loopback their
# packets may be spared the switches (clear_paths.sh); in the world wire none is.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
export ANYRDMA_FABRIC=hosts
enter "${1:-loopback}" "$@"
in_net() { on A env "${SANITIZER[@]}" "$@"; }

# up SHAPE: a new fabric, with all ports ACTIVE.
up() {
	in_net "$ANYRDMA" fabric up "$1" --name hosts >"$TMP/up" 2>&1 || fail "fabric up $1" "$TMP/up"
	in_net "$ANYRDMA" fabric sm opensm >"$TMP/sm" 2>&1 || fail "fabric sm opensm" "$TMP/sm"
}

down() { in_net "$ANYRDMA" fabric down >"$TMP/down" 2>&1 || fail "fabric down" "$TMP/down"; }

# lid_pair PROGRAM ARGS...: a server on node1, a client on $FAR.
lid_pair() {
	local port=$NEXT_PORT name=$1
	shift
	NEXT_PORT=$((NEXT_PORT + 1))
	in_net timeout "$PATIENCE" "$ANYRDMA" run --host node1 "$name" -p "$port" "$@" >"$TMP/server" 2>&1 &
	PID[server]=$!
	until_true "$PATIENCE" listens "${PID[server]}" "$port" || fail "$name $*: nobody listens" "$TMP/server"
	in_net timeout "$PATIENCE" "$ANYRDMA" run --host "$FAR" "$name" -p "$port" "$@" localhost >"$TMP/client" 2>&1 ||
		fail "$name $* on $FAR" "$TMP/client" "$TMP/server"
	wait "${PID[server]}" || fail "$name $*: the server" "$TMP/server" "$TMP/client"
	unset 'PID[server]'
	say "ok    $name $* ($FAR)"
}

pingpong() {
	local size
	for size in 1 17 4096 100000; do
		lid_pair ibv_rc_pingpong -c -s "$size" -n 50
		lid_pair ibv_uc_pingpong -c -s "$size" -n 20
		lid_pair ibv_srq_pingpong -c -s "$size" -n 50
	done
	lid_pair ibv_rc_pingpong -c -e -n 100
	for size in 1 17 1023 4096; do
		lid_pair ibv_ud_pingpong -c -s "$size" -n 50
	done
	lid_pair ibv_ud_pingpong -c -e -n 50
	lid_pair ibv_rc_pingpong -c -g 0 -n 50
	lid_pair ibv_ud_pingpong -c -g 0 -n 50
	lid_pair ibv_rc_pingpong -c -m 256 -s 20000 -n 20
}

perftest() {
	local test
	for test in ib_write_lat ib_write_bw ib_read_lat ib_read_bw ib_send_lat ib_send_bw ib_atomic_lat ib_atomic_bw; do
		lid_pair "$test" -F -n 200
		lid_pair "$test" -F -n 200 -x 0
	done
	lid_pair ib_send_bw -F -n 200 -c UC
	lid_pair ib_write_bw -F -n 200 -c UC
	lid_pair ib_send_lat -F -n 200 -c UD
	lid_pair ib_send_bw -F -n 200 -q 4 -e
}

for shape in "star:2 node2" "tree:2,1,1 node2"; do
	FAR=${shape#* }
	up "${shape% *}"
	"${2:-pingpong}"
	down
done
done_testing
