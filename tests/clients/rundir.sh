#!/bin/bash
# SPDX-License-Identifier: MIT
# rundir.sh: the run directory is removed while programs run, as systemd's RemoveIPC does at a logout. Those that run go on, those
# that start find them, and so do those that start later; through shared memory and by packets.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter loopback "$@"
learn_gids

lose_run_dir() {
	rm -rf "$RUN_DIR"
	mkdir -m 700 "$RUN_DIR"
}

# calls LABEL: a new rping to the server that has listened from the start.
calls() {
	start client B rping -c -a "$IP4_A" -p "$PORT" -v -C 10
	finish client && says client rdma-ping-9 || fail "$1" "$TMP/server" "$TMP/client"
	say "ok    $1"
}

for way in "" off; do
	export ANYRDMA_LOCAL=$way
	say "ANYRDMA_LOCAL=${way:-(default)}"
	serve server rping -s -P -a "$IP4_A"
	for i in 1 2; do
		start_pair "old_$i" 4 ibv_rc_pingpong -e -s 4096 -n 100000000
	done
	more_traffic 4 || fail "no traffic" "$TMP/old_1.server" "$TMP/old_1.client"
	for round in first second; do
		lose_run_dir
		start_pair new 4 ibv_rc_pingpong -c -s 4096 -n 1000
		finish_pair new "a pair that starts when the directory was removed, $round time"
		calls "a call to a program that listened before, $round time"
	done
	start_pair new 4 ibv_rc_pingpong -c -s 4096 -n 1000
	finish_pair new "a pair that starts later"
	more_traffic 4 || fail "the old pairs do not go on" "$TMP/old_1.server" "$TMP/old_1.client"
	for name in old_1.server old_1.client old_2.server old_2.client server; do
		! gone "${PID[$name]}" || fail "$name ended" "$TMP/$name"
		kill_hard "$name"
	done
	say "ok    those that ran before went on"
done

# Two run directories at one port do not know of each other; the second says so.
start first A ibv_rc_pingpong -d "$(device A)" -g "${GID["A 4"]}" -p 18600
until_true "$PATIENCE" listens "${PID[first]}" 18600 || fail "no first program" "$TMP/first"
ANYRDMA_DIR=$TMP/other start second A ibv_rc_pingpong -d "$(device A)" -g "${GID["A 4"]}" -p 18601
until_true "$PATIENCE" says second 'UDP port [0-9]+: 1 other programs have it and are not in our run directory' ||
	fail "a second run directory at the same port is not told" "$TMP/second"
say "ok    a second run directory at the same port is told"
done_testing
