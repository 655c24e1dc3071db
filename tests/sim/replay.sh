#!/bin/sh
# SPDX-License-Identifier: MIT
# A seed gives the same run every time. Runs a test in processes that the loader, the environment and malloc
# lay out differently, and compares the digests of all packets and completions.
#
#   replay.sh PROGRAM [--seed N] [--seeds COUNT]
set -eu

digest()
{
    "$@" --digest | sed -n 's/^digest //p'
}

first=$(MALLOC_PERTURB_=17 digest "$@")
second=$(MALLOC_PERTURB_=165 MALLOC_MMAP_THRESHOLD_=4096 LAYOUT=$(printf '%4096s' x) digest "$@")
third=$(digest "$@")
if [ -z "$first" ] || [ "$first" != "$second" ] || [ "$first" != "$third" ]; then
    echo "$*: digests $first, $second and $third" >&2
    exit 1
fi
echo "$*: $first three times"
