#!/bin/bash
# SPDX-License-Identifier: MIT
# build_with.sh COMPILER SOURCE BUILD: the whole tree builds with COMPILER without a warning. Not optimised: its warnings
# do not depend on that, and nothing of it is run.
set -eu
cmake -G Ninja -S "$2" -B "$3" -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 -DANYRDMA_WERROR=ON >/dev/null
nice cmake --build "$3"
