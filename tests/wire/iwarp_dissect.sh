#!/bin/sh
# SPDX-License-Identifier: MIT
#
# iwarp_dissect.sh PROGRAM: a stranger's eye on our iWARP. PROGRAM writes a capture and says how many FPDUs are in it; fails unless
# tshark sees that many, with as many right CRCs, every operation it knows, and nothing malformed.
set -eu

capture=$(mktemp)
trap 'rm -f "$capture" "$capture.txt"' EXIT
fpdus=$("$1" "$capture")
tshark -n -r "$capture" --disable-protocol rpcordma -V >"$capture.txt" 2>/dev/null
good=$(grep -c 'Good CRC32' "$capture.txt" || true)
echo "$fpdus FPDUs, $good right CRCs"

failed=0
fail()
{
	echo "$1" >&2
	failed=1
}

[ "$fpdus" -gt 0 ] && [ "$fpdus" = "$good" ] || fail "not every FPDU has a right CRC"
! grep -E 'Bad CRC32|Malformed|Bad length' "$capture.txt" >&2 || fail "tshark complains"
for operation in Write 'Read Request' 'Read Response' Send Terminate 'Atomic Request' 'Atomic Response'; do
	grep -q "OpCode: $operation (" "$capture.txt" || fail "no $operation"
done
grep -q 'FPDU back pointer: 0 bytes' "$capture.txt" || fail "no markers"
exit $failed
