#!/bin/bash
# SPDX-License-Identifier: MIT
# rsocket.sh WORLD: programs of rdmacm-utils that use stream rsockets.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/cm.sh
. "$HERE/cm.sh"
enter "$1" "$@"
needs_ipv6
learn_gids
registry >"$TMP/registry_before"
[ -z "$GUEST" ] || on "$GUEST" mkdir -p "$TMP"

# killed VICTIM SURVIVOR ARGS...: rstream in mid transfer. Who is left gets an error: the one who sends because
# nothing is acknowledged, the one who waits because the other gives no sign of life.
killed() {
	local victim=$1 survivor=$2 status=0
	shift 2
	serve server rstream -b "$IP4_A" "$@"
	start client B rstream -s "$IP4_A" -p "$PORT" "$@"
	more_traffic 4 || fail "no traffic to interrupt" "$TMP/server" "$TMP/client"
	kill_hard "$victim"
	finish "$survivor" || status=$?
	if [ "$status" -eq 0 ] || [ "$status" -eq 137 ] || ! content "$survivor"; then
		fail "rstream $*: the $survivor after the $victim's death (status $status)" "$TMP/$survivor"
	else
		say "ok    rstream $*: the $survivor ends with an error when the $victim is killed"
	fi
}

refused() {
	serve server rstream -b "$IP4_A" # somebody must be there to answer for the host
	start client B rstream -s "$IP4_A" -p $((PORT + 1000)) -T b
	! finish client && says client 'Connection refused' || fail "rstream to a port nobody has" "$TMP/client"
	kill_hard server
	say "ok    rstream to a port nobody has: Connection refused"
}

refused
MODES=("" "-T b")
# rdma-core's own client with -T a fails, over rxe to rxe too, when the connection's end comes with the last bytes.
[ "$GUEST" = B ] || MODES+=("-T a" "-T b -T a")
for mode in "${MODES[@]}"; do
	# shellcheck disable=SC2086 # words
	for size in "64 -I 200 -C 1" "64 -C 5000" "4096 -C 500" "65536 -C 100" "1000000 -C 10"; do
		stream 4 rstream -T v $mode -S $size
	done
done
stream 4 rstream -T v -S 4194304 -C 4 -B 2000
stream 4 rstream -T v -T r -f ip -k 1 -S 3000 -C 100
stream 6 rstream -T v -f ipv6 -S 30000 -C 100
stream 6 rstream -T v -T b -S 64 -I 100 -C 1
for mode in "" "-T b" "-T a"; do
	# shellcheck disable=SC2086 # words
	for size in "64 -I 50 -C 1" "4096 -C 100" "200000 -C 10"; do
		stream 4 riostream -T v $mode -S $size
	done
done
stream 6 riostream -T v -S 1000 -I 10 -C 5
copies 1
copies 3000000
# Linux's rxe asks for ever, as rsockets tell it to (retry_cnt 7).
[ "$GUEST" = B ] || killed server client -T b -S 100000 -C 100000000
[ "$GUEST" = A ] || killed client server -T b -T a -S 1000 -I 1000000 -C 1000
nothing_left
done_testing
