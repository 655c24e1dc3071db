#!/bin/bash
# SPDX-License-Identifier: MIT
# gone.sh: two guests at once; the test of the one is killed without a word, that of the other told to end. Neither leaves a process.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"

# test_with_guest NAME: in the background; a folder of its own is in the environment of all it starts.
test_with_guest() {
	mkdir "$TMP/$1.folder"
	mkfifo "$TMP/$1.input"
	TMPDIR=$TMP/$1.folder "$HERE/../interop/console.sh" rxe-calls-1500 <>"$TMP/$1.input" >"$TMP/$1" 2>&1 &
	PID[$1]=$!
}

# up NAME: or over, with a word why not.
up() { says "$1" '^status 0' || gone "${PID[$1]}"; }

# nothing_of NAME: $TMP/left has the processes that there still are.
nothing_of() {
	grep -ls "$TMP/$1.folder" /proc/[0-9]*/{environ,cmdline} >"$TMP/left" || true # some of them end meanwhile
	! [ -s "$TMP/left" ]
}

# ended NAME HOW
ended() {
	until_true 20 nothing_of "$1" || fail "a test that is $2 leaves processes" "$TMP/left"
	say "ok    a test that is $2 leaves no process"
}

test_with_guest first
test_with_guest second
for name in first second; do
	until_true 200 up "$name" || true
	! says "$name" SKIP || skip "$(sed -n 's/^SKIP *//p' "$TMP/$name")"
	says "$name" '^status 0' || fail "no guest" "$TMP/$name"
done
echo 'echo busy; while :; do :; done' >"$TMP/first.input"
until_true "$PATIENCE" says first '^busy' || fail "the first guest does nothing" "$TMP/first"
! nothing_of first || fail "where are the processes of the first?"

kill_hard first
ended first killed
echo uname >"$TMP/second.input"
until_true "$PATIENCE" says second '^Linux' || fail "the second guest suffers" "$TMP/second"
say "ok    the other guest does not notice"
kill "${PID[second]}"
ended second "told to end"
done_testing
