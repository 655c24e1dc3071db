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
	local name=$1 side=$2 family=$3 program=$ANYRDMA_BUILD/tests/interop/across own=()
	shift 3
	[ "$side" != "$GUEST" ] || program=across
	[[ $WORLD != siw-* ]] || own=("VERBS_ADDRESS=$(address "$family" "$side")" VERBS_CAPS=stream ANYRDMA_DEVICES=iwarp)
	start "$name" "$side" env "VERBS_DEVICE=$(device "$side")" "VERBS_GID=$family" VERBS_DEADLINE="$PATIENCE" "${own[@]}" \
		"$program" "$@"
}

# ends_well NAME CASE: and our end refused no packet, except of a UC message with gaps.
ends_well() {
	local complaints=$COMPLAINTS status=0 due=0
	[ "$2" != gaps ] || complaints=${COMPLAINTS/|dropped/}
	[ "$1 $2" != "target killed" ] || due=137
	finish "$1" || status=$?
	[ -z "$GUEST" ] || note_counted "$1"
	[ "$status" -eq "$due" ] && ! says "$1" "$complaints"
}

# both FAMILY CASE: the target on A, the caller on B.
both() {
	local port=$NEXT_PORT well=1
	NEXT_PORT=$((NEXT_PORT + 1))
	across target A "$1" "$port" "$2"
	until_true "$PATIENCE" listens "${PID[target]}" "$port" || true
	across caller B "$1" "$port" -c "$IP4_A" "$2"
	ends_well caller "$2" || well=0
	ends_well target "$2" || well=0
	[ "$well" = 1 ] || fail "IPv$1 $2 ($WORLD)" "$TMP/target" "$TMP/caller"
	[ "$well" = 0 ] || say "ok    IPv$1 $2"
}

all_cases() {
	local family case
	for family in 4 6; do
		for case in "${CASES[@]}"; do
			both "$family" "$case"
		done
	done
	[[ $WORLD != siw-* ]] || other_openings
}

# other_openings: with the CRC, and without peer-to-peer mode.
other_openings() {
	local how
	for how in crc client-server; do
		say "   ANYRDMA_IWARP=$how"
		ANYRDMA_IWARP=$how both 4 all
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
