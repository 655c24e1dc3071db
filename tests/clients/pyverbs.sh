#!/bin/bash
# SPDX-License-Identifier: MIT
# pyverbs.sh [iwarp|fabric|fabric-hops]: rdma-core's own test suite, in Python over Debian's bindings. What asks for hardware we do not
# pose as (mlx5, efa, XRC, raw packets) it skips by itself; of the rest none may fail, and no fewer may run than did.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
SUITE=/usr/share/doc/rdma-core/tests # of the package python3-pyverbs
PYTHON=/usr/bin/python3              # whose modules Debian's are

[ -e "$SUITE/run_tests.py" ] || skip "needs python3-pyverbs, with its documentation"
if [[ ${1:-} = fabric* ]]; then
	enter "$1" "$@"
else
	enter loopback "$@"
	export ANYRDMA_DEVICES=${1:-}
fi

unpack() {
	cp -r "$SUITE" "$TMP/tests"
	find "$TMP/tests" -name '*.gz' -exec gunzip {} +
}

# at_least PASSED SKIPPED
at_least() {
	[ "$1" -ge "$AT_LEAST" ] || fail "only $1 tests of rdma-core's suite ran" "$TMP/suite"
	say "ok    rdma-core's suite on $(device A): $1 passed, $2 skipped"
}

run_suite() {
	run A timeout "$((PATIENCE * 4))" "$PYTHON" -B "$TMP/tests/run_tests.py" --dev "$(device A)" -v >"$TMP/suite" 2>&1
}

whole_suite() {
	local AT_LEAST=90 tests skipped
	[ "${#HOST_A[@]}" -eq 0 ] || AT_LEAST=103
	run_suite || fail "rdma-core's suite" "$TMP/suite"
	content suite || fail "rdma-core's suite says something" "$TMP/suite"
	tests=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$TMP/suite")
	skipped=$(sed -n 's/^OK (skipped=\([0-9]*\))$/\1/p' "$TMP/suite")
	at_least "$((${tests:-0} - ${skipped:-0}))" "${skipped:-0}"
}

# What fails on any iWARP device. Two want a new queue pair in RESET, where another wants INIT of an RNIC; and of rdma_cm's: a
# queue pair's timeout, the event CONNECT_RESPONSE, datagrams, and a WRITE in its place as soon as it is reported.
UNFIT='create_rc_qp_no_attr|create_rc_qp_ex_no_attr|rdmacm_async_(traffic|traffic_external_qp|udp_traffic|write)'

leave_out_unfit() { sed -i -E "s/def test_($UNFIT)\(/def unfit_\1(/" "$TMP"/tests/*.py; }

# failed_otherwise: who failed, but not since it connects queue pairs by hand.
failed_otherwise() {
	awk '/^(ERROR|FAIL): / { name = $2; failed[name] } /Failed to modify QP state to RTR/ { delete failed[name] }
		END { for (name in failed) print name }' "$TMP/suite"
}

what_iwarp_has() {
	local AT_LEAST=29
	leave_out_unfit
	! run_suite || fail "rdma-core's suite fails nowhere" "$TMP/suite"
	failed_otherwise >"$TMP/failed"
	[ ! -s "$TMP/failed" ] || fail "rdma-core's suite" "$TMP/failed" "$TMP/suite"
	content suite || fail "rdma-core's suite says something" "$TMP/suite"
	at_least "$(grep -c ' ok$' "$TMP/suite")" "$(grep -c ' skipped ' "$TMP/suite")"
}

unpack
if [ "${ANYRDMA_DEVICES:-}" = iwarp ]; then what_iwarp_has; else whole_suite; fi
done_testing
