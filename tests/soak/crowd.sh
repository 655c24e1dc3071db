#!/bin/sh
# SPDX-License-Identifier: MIT
# crowd.sh BUILD SECONDS: crowds of connections between processes that sleep (tests/preload/crowd.c), for so long,
# beside twice as many busy processes as there are CPUs. A wake-up that is lost is a failure.
set -eu
build=$1 each=$(($2 / 3 + 1))

for _ in $(seq $((2 * $(nproc)))); do
    while :; do :; done &
    busy="${busy-} $!"
done
# shellcheck disable=SC2064,SC2086 # those of now, each by itself
trap "kill $busy 2>/dev/null" EXIT

for how in "--connections 50" "--connections 100" "--connections 50 --threads 3"; do
    # shellcheck disable=SC2086 # two words or four
    ANYRDMA_SOCKETS_SILENCE=60000 "$build/bin/anyrdma" run --sockets "$build/tests/preload/preload_crowd" --seconds "$each" $how
done
