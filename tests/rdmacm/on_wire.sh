#!/bin/bash
# SPDX-License-Identifier: MIT
# on_wire.sh PROGRAM: runs it on an interface that has neighbours, and multicast in both families.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
enter veth-1500 "$@"
"$1" "$IP4_A" "$IP6_A" || fail "$(basename "$1")"
done_testing
