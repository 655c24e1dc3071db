#!/bin/bash
# SPDX-License-Identifier: MIT
# kill.sh WORLD: kill -9 of one end in mid transfer. The other end gets its error completions and ends within
# its timeouts, nothing is left behind, and the next run works.
#
# Both ends send (-b), so that whichever survives has requests of its own that time out: perftest asks for 4 us *
# 2^14 and 7 retries, half a second in all. A mere receiver would rightly wait for ever.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"
learn_gids
registry >"$TMP/registry_before"

TIMEOUTS=20 # seconds: generous to a busy machine, and far below the run's own 120

# survives VICTIM SURVIVOR PROGRAM ARGS...
survives() {
	local victim=$1 survivor=$2 status=0
	shift 2
	start_pair killed 4 "$@" -F -b -D 120
	more_traffic 16 || fail "no traffic to interrupt" "$TMP/killed.server" "$TMP/killed.client"
	goes_its_way || fail "not by the way of this world" "$TMP/killed.server" "$TMP/killed.client"
	kill_hard "killed.$victim"
	finish "killed.$survivor" "$TIMEOUTS" || status=$?
	if [ "$status" -eq 0 ] || [ "$status" -ge 124 ]; then
		fail "$1: the $survivor should end with an error after the $victim's death (status $status)" \
			"$TMP/killed.$survivor"
	else
		say "ok    $1: the $survivor ends with an error when the $victim is killed"
	fi
}

for program in ib_write_bw ib_send_bw ib_read_bw; do
	survives server client "$program"
	survives client server "$program"
	pair 4 "$program" -F -n 50
done
nothing_left
done_testing
