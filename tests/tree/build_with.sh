#!/bin/bash
# SPDX-License-Identifier: MIT
# build_with.sh COMPILER SOURCE BUILD: the whole tree builds with COMPILER without a warning.
set -eu
cmake -G Ninja -S "$2" -B "$3" -DCMAKE_C_COMPILER="$1" -DANYRDMA_WERROR=ON >/dev/null
cmake --build "$3"
