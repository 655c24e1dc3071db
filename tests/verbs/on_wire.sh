#!/bin/bash
# SPDX-License-Identifier: MIT
# on_wire.sh PROGRAM [PATTERN]: a theme on an interface that has multicast, which the loopback has not: both families, by
# packets and through shared memory. None of its tests may be skipped.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
enter veth-1500 "$@"
export VERBS_DEVICE=roce_va
program=$1
shift
for family in 4 6; do
	for way in off copy; do
		VERBS_GID=$family ANYRDMA_LOCAL=$way "$program" "$@" >"$TMP/theme" 2>&1 && ! says theme SKIPPED ||
			fail "${program##*/} by IPv$family, $way" "$TMP/theme"
		say "ok    ${program##*/} by IPv$family, $way"
	done
done
done_testing
