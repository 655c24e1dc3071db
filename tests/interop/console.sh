#!/bin/bash
# SPDX-License-Identifier: MIT
# console.sh WORLD: a guest to talk to. Each line of input is a command for its shell; behind the command's output comes a line
# "status N". The first such line says that the guest is up.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
enter "$1" "$@"

say "status 0"
while IFS= read -r line; do
	status=0
	on "$GUEST" sh -c "$line" </dev/null || status=$?
	say "status $status"
done
