#!/bin/bash
# SPDX-License-Identifier: MIT
# full.sh: /dev/shm is full. Who would have to make files there is refused in one sentence and ends by itself; who finds them made,
# or works already, is not concerned; sockets go by TCP. With room again all is as ever.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
own_network "$@" || skip "needs root or user namespaces, to have a /dev/shm of its own"
if [ -z "${OWN_SHM:-}" ]; then
	unshare -m true 2>/dev/null || skip "needs mount namespaces, to have a /dev/shm of its own"
	rm -rf "$TMP"
	OWN_SHM=1 exec unshare -m --propagation private -- "$0" "$@"
fi
mount -t tmpfs -o size=1m,mode=1777 shm /dev/shm || skip "may not mount a /dev/shm of its own"
enter loopback "$@"
learn_gids

fill() {
	! head -c 2M /dev/zero >/dev/shm/fill 2>/dev/null || fail "/dev/shm is not full"
}

# refused PROGRAM ARGS...: it says so, and is not killed by a signal.
refused() {
	local status=0
	start program A "$@"
	finish program || status=$?
	says program 'cannot open .*: its file system is full: make room there, or set ANYRDMA_DIR' && [ "$status" -gt 0 ] &&
		[[ $status -lt 128 || $status -gt 192 ]] || fail "$*: status $status" "$TMP/program"
	say "ok    refused: $*"
}

nobody_can_begin() {
	run A ibv_devinfo >"$TMP/devinfo" 2>&1 || fail "ibv_devinfo" "$TMP/devinfo"
	say "ok    ibv_devinfo needs no room"
	refused ibv_rc_pingpong -d "$(device A)" -g "${GID["A 4"]}"
	refused rping -s -a "$IP4_A"
	refused rstream
	! "$ANYRDMA" doctor >"$TMP/doctor" 2>&1 || fail "doctor finds nothing" "$TMP/doctor"
	says doctor '^problem +directory +the file system of' || fail "doctor does not say it" "$TMP/doctor"
	say "ok    anyrdma doctor says so"
}

sockets_go_by_tcp() {
	start server A --sockets python3 -m http.server --directory "$TMP" 18080
	until_true "$PATIENCE" listens "${PID[server]}" 18080 || true
	start client B --sockets curl -sS "http://$IP4_A:18080/devinfo"
	finish client && grep -q roce_lo "$TMP/client" || fail "sockets do not go by TCP" "$TMP/server" "$TMP/client"
	kill_hard server
	say "ok    sockets go by TCP"
}

work_goes_on() {
	start_pair old 4 ibv_rc_pingpong -e -s 4096 -n 100000000
	serve listener rping -s -P -a "$IP4_A"
	more_traffic 4 || fail "no traffic" "$TMP/old.server" "$TMP/old.client"
	fill
	more_traffic 4 || fail "those that work do not go on" "$TMP/old.server" "$TMP/old.client"
	say "ok    those that work go on"
	pair 4 ibv_rc_pingpong -c -s 4096 -n 1000
	start client B rping -c -a "$IP4_A" -p "$PORT" -v -C 10
	finish client && says client rdma-ping-9 || fail "no call to who listens" "$TMP/listener" "$TMP/client"
	say "ok    who listens is called"
	kill_hard old.client
	kill_hard old.server
	kill_hard listener
}

fill
nobody_can_begin
sockets_go_by_tcp
rm /dev/shm/fill
pair 4 ibv_rc_pingpong -c -s 4096 -n 1000
work_goes_on
done_testing
