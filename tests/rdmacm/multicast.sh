#!/bin/bash
# SPDX-License-Identifier: MIT
# multicast.sh PROGRAM: tests/rdmacm/multicast.c on an interface that has multicast in both families.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
enter veth-1500 "$@"
"$1" "$IP4_A" "$IP6_A" || fail "multicast"
done_testing
