#!/bin/bash
# SPDX-License-Identifier: MIT
# soak.sh BUILD SECONDS [FIRST]: the random simulations on all cores for so long, with seeds nobody has run before
# (or from FIRST on). Stops at the first failure, which says how to replay it.
set -u
build=$1 seconds=$2 first=${3:-$(date +%s)000000}
programs=(sim_test stream_test channel_test) batch=100 workers=$(nproc) start=$SECONDS
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

worker() { # INDEX: every workers-th batch, by each program in turn
	local at=$((first + $1 * batch)) turn=$1 program
	while [ $((SECONDS - start)) -lt "$seconds" ] && [ ! -e "$dir/failed" ]; do
		program=$build/tests/sim/${programs[turn++ % ${#programs[@]}]}
		if ! "$program" --seed $at --seeds $batch >"$dir/out.$1" 2>&1; then
			mv "$dir/out.$1" "$dir/failed"
			return
		fi
		echo >>"$dir/done.$1"
		at=$((at + workers * batch))
	done
}

progress() {
	printf 'simulation: %d s, %d seeds from %s on\n' $((SECONDS - start)) \
		$(($(cat "$dir"/done.* 2>/dev/null | wc -l) * batch)) "$first"
}

for ((i = 0; i < workers; i++)); do worker $i & done
while [ "$(jobs -r | wc -l)" -gt 0 ]; do
	for ((i = 0; i < 10; i++)); do [ "$(jobs -r | wc -l)" -gt 0 ] && sleep 1; done
	progress
done
wait
if [ -e "$dir/failed" ]; then
	cat "$dir/failed"
	exit 1
fi
