#!/bin/bash
# SPDX-License-Identifier: MIT
# clear_paths.sh: two hosts of a fabric through shared memory, as long as its switches would carry their packets: which way programs
# go, what a cut cable does to them, how they come back. The fabric manages itself.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
export ANYRDMA_FABRIC=clear
enter loopback "$@"
export ANYRDMA_LOG=info

MEMORY='QP 0x[0-9a-f]+: to QP 0x[0-9a-f]+ through shared memory'
HOPS='QP 0x[0-9a-f]+: to QP 0x[0-9a-f]+ through the fabric'
BACK="$MEMORY from now on" AWAY="$HOPS from now on"

fabric() { on A env "${SANITIZER[@]}" "$ANYRDMA" fabric "$@" >"$TMP/fabric" 2>&1 || fail "fabric $*" "$TMP/fabric"; }

end_fabric() { on A "$ANYRDMA" fabric down --name clear >/dev/null 2>&1 || true; }

# managed SHAPE: another fabric in place of the one that is there.
managed() {
	end_fabric
	fabric up --quiet --name clear "$1"
}

# begin_pair FAR PROGRAM ARGS...: a server on node1, a client on the host FAR.
begin_pair() {
	local far=$1 name=$2
	shift 2
	PORT=$NEXT_PORT NEXT_PORT=$((NEXT_PORT + 1))
	rm -f "$TMP/server" "$TMP/client" # what the last ones said
	start server A --host node1 "$name" -p "$PORT" "$@"
	until_true "$PATIENCE" listens "${PID[server]}" "$PORT" || fail "$name $*: nobody listens" "$TMP/server"
	start client A --host "$far" "$name" -p "$PORT" "$@" localhost
}

# end_pair LABEL: both come to a good end.
end_pair() {
	local name
	for name in client server; do
		wait "${PID[$name]}" || fail "$1: the $name" "$TMP/client" "$TMP/server"
		unset "PID[$name]"
	done
	say "ok    $1"
}

# break_off: both are to go on for ever.
break_off() {
	local name
	for name in client server; do
		kill -9 "${PID[$name]}" 2>/dev/null || true
		wait "${PID[$name]}" 2>/dev/null || true
		unset "PID[$name]"
	done
}

# comes PATTERN NAME: a program says so before long.
comes() { until_true "$PATIENCE" says "$2" "$1" || fail "$2 never says: $1" "$TMP/client" "$TMP/server" "$TMP/fabric"; }

# goes PATTERN FAR PROGRAM ARGS...: a pair, connected by this way. When the server has ended there is none any more.
goes() {
	local pattern=$1
	shift
	begin_pair "$@"
	end_pair "$*"
	says client "$pattern\$" || fail "$*: by another way" "$TMP/client"
}

ways() {
	local shape far
	for shape in "star:4 node4" "fat-tree:4 node16" "star:4 node1"; do
		far=${shape#* }
		managed "${shape% *}"
		goes "$MEMORY" "$far" ibv_rc_pingpong -c -s 100000
		goes "$MEMORY" "$far" ibv_uc_pingpong -c
		goes "$MEMORY" "$far" ibv_rc_pingpong -c -g 0
		goes "$MEMORY" "$far" ib_write_lat -F -n 2000
		export ANYRDMA_LOCAL=off
		goes "$HOPS" "$far" ibv_rc_pingpong -c -s 100000 -n 100
		unset ANYRDMA_LOCAL
	done
	managed star:4
	fabric inject 'S1[2]' loss=0.001%
	goes "$HOPS" node2 ibv_rc_pingpong -c
	goes "$MEMORY" node3 ibv_rc_pingpong -c
	fabric inject 'S1[2]' none
	fabric capture "$TMP/capture" 'S1[2]'
	goes "$HOPS" node2 ibv_rc_pingpong -c
	fabric capture stop
	goes "$MEMORY" node2 ibv_rc_pingpong -c
}

# ends_by_retries LABEL: the program with a pair that was cut off has been told.
ends_by_retries() {
	until_true "$PATIENCE" gone "${PID[client]}" || fail "$1: it goes on" "$TMP/client"
	says client 'status 12|retry exceeded|status: 12' || fail "$1: by another error" "$TMP/client"
	break_off
	say "ok    $1"
}

cuts() {
	local test
	managed star:4
	for test in "ib_write_bw -s 65536" "ib_send_bw -s 8" "ib_read_bw -s 4096" "ib_atomic_bw"; do
		# shellcheck disable=SC2086
		begin_pair node2 $test -F -u 14 -n 100000000
		comes "$MEMORY\$" client
		until_true "$PATIENCE" under_way || fail "$test does not begin" "$TMP/client" "$TMP/server"
		fabric cut 'S1[2]'
		ends_by_retries "$test: a cut cable cuts"
		fabric mend 'S1[2]'
		goes "$MEMORY" node2 ibv_rc_pingpong -c
	done
}

# under_way: what the programs move is in their counters.
under_way() {
	local now
	now=$(traffic)
	[ "$now" -gt "${BEFORE:-0}" ] && [ -n "${BEFORE:-}" ] && unset BEFORE && return 0
	BEFORE=$now
	return 1
}

# up_again: as soon as nothing is left of the one that was killed.
up_again() { on A "$ANYRDMA" fabric up --quiet --name clear star:4 >"$TMP/fabric" 2>&1; }

returns() {
	local test i
	managed star:4
	for test in "ib_write_bw -s 65536" "ib_send_bw -s 4096" "ib_send_lat" "ib_read_bw -s 65536" \
		"ib_write_bw -b -s 65536"; do
		# shellcheck disable=SC2086
		begin_pair node2 $test -F -u 18 -n 100000000
		comes "$MEMORY\$" client
		fabric inject 'S1[2]' loss=0.001%
		comes "$AWAY" client
		fabric inject 'S1[2]' none
		comes "$BACK" client
		say "ok    $test: away from shared memory, and back"
		fabric cut 'S1[2]'
		fabric mend 'S1[2]'
		until_true "$PATIENCE" under_way || fail "$test does not go on" "$TMP/client" "$TMP/server"
		gone "${PID[client]}" && fail "$test has ended" "$TMP/client"
		break_off
	done
	begin_pair node2 ib_write_bw -s 65536 -F -u 18 -n 100000000
	comes "$MEMORY\$" client
	kill -9 "$(cat "$RUN_DIR/net-${NAMESPACES[0]}/fabric-clear/lock")"
	comes "$AWAY" client
	until_true "$PATIENCE" up_again || fail "it cannot be started again" "$TMP/fabric"
	comes "$BACK" client
	say "ok    a fabric that is killed and started again"
	break_off
	managed tree:2,2,1
	begin_pair node2 ibv_rc_pingpong -c -s 30000 -n 100000
	for i in $(seq 1 10); do
		fabric cut "spine$((i % 2 + 1))[1]"
		fabric mend "spine$((i % 2 + 1))[1]"
	done
	end_pair "ibv_rc_pingpong: no byte is wrong while its route changes"
}

# What the subnet manager does elsewhere is nobody's business on this path.
stays() {
	local i
	managed fat-tree:4
	begin_pair node2 ib_send_bw -s 512 -F -u 18 -n 100000000
	comes "$MEMORY\$" client
	until_true "$PATIENCE" under_way || fail "it does not begin" "$TMP/client" "$TMP/server"
	for i in $(seq 1 40); do
		fabric cut 'core4[4]'
		fabric mend 'core4[4]'
	done
	until_true "$PATIENCE" under_way || fail "it does not go on" "$TMP/client" "$TMP/server"
	! says client "$AWAY" && ! says server "$AWAY" || fail "$i sweeps: away from shared memory" "$TMP/client" "$TMP/server"
	break_off
	say "ok    ib_send_bw: stays in shared memory while the subnet manager sweeps"
}

ended=0
trap 'ended=$?; set +e; end_fabric; (exit $ended); leave' EXIT
"${1:-ways}"
done_testing
