#!/bin/bash
# SPDX-License-Identifier: MIT
# pyverbs.sh: rdma-core's own test suite, in Python over Debian's bindings. What asks for hardware we do not
# pose as (mlx5, efa, XRC, raw packets, rdma_cm) it skips by itself; of the rest none may fail, and no fewer may
# run than did.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
AT_LEAST=90
SUITE=/usr/share/doc/rdma-core/tests # of the package python3-pyverbs
PYTHON=/usr/bin/python3              # whose modules Debian's are

[ -e "$SUITE/run_tests.py" ] || skip "needs python3-pyverbs, with its documentation"
enter loopback "$@"

unpack() {
	cp -r "$SUITE" "$TMP/tests"
	find "$TMP/tests" -name '*.gz' -exec gunzip {} +
}

whole_suite() {
	local tests skipped passed
	run A timeout "$((PATIENCE * 4))" "$PYTHON" -B "$TMP/tests/run_tests.py" --dev "$(device A)" -v \
		>"$TMP/suite" 2>&1 || fail "rdma-core's suite" "$TMP/suite"
	content suite || fail "rdma-core's suite says something" "$TMP/suite"
	tests=$(sed -n 's/^Ran \([0-9]*\) tests.*/\1/p' "$TMP/suite")
	skipped=$(sed -n 's/^OK (skipped=\([0-9]*\))$/\1/p' "$TMP/suite")
	passed=$((${tests:-0} - ${skipped:-0}))
	[ "$passed" -ge "$AT_LEAST" ] || fail "only $passed tests of rdma-core's suite ran" "$TMP/suite"
	say "ok    rdma-core's suite: $passed passed, $skipped skipped"
}

unpack
whole_suite
done_testing
