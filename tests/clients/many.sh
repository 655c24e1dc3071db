#!/bin/bash
# SPDX-License-Identifier: MIT
# many.sh WORLD: eight pairs of processes share one port; one pair is killed in mid transfer, and the others
# neither lose data nor stop.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"
learn_gids
registry >"$TMP/registry_before"

OTHERS=(1 2 3 4 5 6 7)
ROUNDS=3000
[ "$WORLD" != loopback ] || ROUNDS=20000 # through shared memory they are soon done

start_others() {
	local i
	for i in "${OTHERS[@]}"; do
		start_pair "other_$i" $((i % 2 ? 4 : 6)) ibv_rc_pingpong -e -c -s 32768 -n "$ROUNDS"
	done
}

still_at_work() {
	local i
	for i in "${OTHERS[@]}"; do
		gone "${PID[other_$i.client]}" || return 0
	done
	return 1
}

start_pair victim 4 ibv_rc_pingpong -e -c -s 65536 -n 100000000
more_traffic 4 || fail "no traffic" "$TMP/victim.server" "$TMP/victim.client"
start_others # last, and the kill follows at once: the first of them may be done soon, the last of them are not
still_at_work || fail "the others were done before the kill; give them more to do"
! gone "${PID[victim.client]}" || fail "the victim ended by itself" "$TMP/victim.server" "$TMP/victim.client"
kill_hard victim.server victim.client
for i in "${OTHERS[@]}"; do
	finish_pair "other_$i" "pair $i goes on after another was killed"
done
nothing_left
done_testing
