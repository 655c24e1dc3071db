#!/bin/bash
# SPDX-License-Identifier: MIT
# across.sh WORLD [CASE...]: what Debian's programs leave out (across.h): every length, full depth, mistakes, and ends
# that go away; first side B calls, then side A. Where the wire is lossy, it loses, doubles and swaps packets.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
WIRE=$ANYRDMA_BUILD/tests/clients/lossy_wire
enter "$1" "$@"
CASES=("${@:2}")
case ${#CASES[@]}:$1 in
0:*lossy*) CASES=(lengths gaps reads atomics both late) ;;
0:*) CASES=(all killed) ;;
esac

# across NAME SIDE FAMILY ARGS...: in the guest it lies among the programs.
across() {
	local name=$1 side=$2 family=$3 program=$ANYRDMA_BUILD/tests/interop/across
	shift 3
	[ "$side" != "$GUEST" ] || program=across
	start "$name" "$side" env "VERBS_DEVICE=$(device "$side")" "VERBS_GID=$family" VERBS_DEADLINE="$PATIENCE" "$program" "$@"
}

# both FAMILY CASE: the target on A, the caller on B.
both() {
	local port=$NEXT_PORT target=0
	NEXT_PORT=$((NEXT_PORT + 1))
	across target A "$1" "$port" "$2"
	until_true "$PATIENCE" listens "${PID[target]}" "$port" || true
	across caller B "$1" "$port" -c "$IP4_A" "$2"
	if finish caller 120 && { finish target 120 || target=$?; [ "$target" -eq "$([ "$2" = killed ] && echo 137 || echo 0)" ]; }; then
		say "ok    IPv$1 $2"
	else
		finish target 0 || true
		fail "IPv$1 $2 ($WORLD)" "$TMP/target" "$TMP/caller"
	fi
}

all_cases() {
	local family case
	for family in 4 6; do
		for case in "${CASES[@]}"; do
			both "$family" "$case"
		done
	done
}

[[ $1 != *lossy* ]] || lossy_wire "${1##*-}" loss=10 double=20 swap=20
say "-- side B calls"
all_cases
if [ -n "$GUEST" ]; then
	swap_sides
	say "-- side A calls"
	all_cases
fi
done_testing
