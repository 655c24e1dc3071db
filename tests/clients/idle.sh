#!/bin/bash
# SPDX-License-Identifier: MIT
# idle.sh [WORLD]: an open device with nothing to do uses under 0.5% of a core, and so does a fabric. The one test that has to watch
# a clock.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "${1:-veth-1500}" "$@"
learn_gids

WATCH=5 # seconds

# idle LABEL NAME: 0.5% of a core is one tick of 10 ms in two seconds.
idle() {
	local pid=${PID[$2]} before used
	before=$(cpu_ticks "$pid")
	sleep $WATCH
	used=$(($(cpu_ticks "$pid") - before))
	if [ $((used * 200)) -lt $((WATCH * $(getconf CLK_TCK))) ]; then
		say "ok    $1: $used ticks in $WATCH s"
	else
		fail "$1: $used ticks in $WATCH s is more than 0.5% of a core" "$TMP/$2"
	fi
}

# sleeps PID: the main thread is in nanosleep, where perftest waits before it destroys its objects.
sleeps() { gone "$1" || grep -qs nanosleep "/proc/$1/wchan"; }

# rests NAME: it has printed its result, for which perftest burns CPU to measure the clock, and sleeps.
rests() { says "$1" '^ 65536' && sleeps "${PID[$1]}"; }

watching() {
	start watch A ibv_asyncwatch -d "$(device A)"
	until_true 10 says watch 'async event FD' || fail "ibv_asyncwatch does not start" "$TMP/watch"
	idle "an open device" watch
	kill_hard watch
}

waiting_for_a_client() {
	start waiting A ibv_rc_pingpong -d "$(device A)" -g "${GID["A 4"]}" -p "$NEXT_PORT"
	until_true 10 listens "${PID[waiting]}" "$NEXT_PORT" || fail "the server does not listen" "$TMP/waiting"
	idle "a queue pair with receives posted" waiting
	kill_hard waiting
	NEXT_PORT=$((NEXT_PORT + 1))
}

# Eight connected queue pairs on each end that have had traffic and have none now.
connected() {
	start_pair connected 4 ib_write_bw -F -n 20 -q 8 --wait_destroy=$((WATCH * 3))
	until_true "$PATIENCE" rests connected.client || fail "no pause" "$TMP/connected.client"
	until_true "$PATIENCE" rests connected.server || fail "no pause" "$TMP/connected.server"
	idle "connected queue pairs, initiator" connected.client
	idle "connected queue pairs, target" connected.server
	finish_pair connected "and the pair ends well"
}

watching
waiting_for_a_client
connected
if [ "${#HOST_A[@]}" -gt 0 ]; then
	PID[fabric]=$(fabric_process)
	idle "the fabric" fabric
	unset "PID[fabric]"
fi
done_testing
