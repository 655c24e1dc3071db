#!/bin/bash
# SPDX-License-Identifier: MIT
# compiles_with.sh COMPILER SOURCE BUILD: COMPILER takes every source of the tree without a warning. Its warnings do not depend on the
# code it would make, and nothing of it is run: that takes half the time.
set -euo pipefail
cmake -G Ninja -S "$2" -B "$3" -DCMAKE_C_COMPILER="$1" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG= -DANYRDMA_WERROR=ON >/dev/null
python3 - "$3/compile_commands.json" <<-'END' | nice xargs -0 -P "$(nproc)" -n 1 sh -c
	import json, sys
	commands = {c["file"]: f'cd {c["directory"]} && {c["command"]} -fsyntax-only' for c in json.load(open(sys.argv[1]))}
	print(*commands.values(), sep="\0", end="")
END
