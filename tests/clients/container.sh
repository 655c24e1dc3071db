#!/bin/bash
# SPDX-License-Identifier: MIT
# container.sh: a few entries of each kind in surroundings as Docker makes them (tests/container), without IPv6, and with the port
# taken. None fails; those named below must have been skipped, with a reason, and no other.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
export ANYRDMA_BUILD
unset ANYRDMA_DIR
# A ctest inside a ctest: with logs of its own.
mkdir "$TMP/entries"
echo "subdirs(\"$(realpath "$ANYRDMA_BUILD")\")" >"$TMP/entries/CTestTestfile.cmake"

# inside WORDS... -- ENTRIES SKIPPED: patterns of entries' names.
inside() {
	local words=()
	while [ "$1" != -- ]; do words+=("$1") && shift; done
	local status=0
	"$HERE/../container" "${words[@]}" -- env -u CI ctest -j4 --test-dir "$TMP/entries" -R "^($2)\$" --no-tests=error -V >"$TMP/out" 2>&1 || status=$?
	[ "$status" -ne 77 ] || skip "$(sed -n 's/^SKIP  //p' "$TMP/out")"
	[ "$status" -eq 0 ] || fail "in a container (${words[*]}): $2" "$TMP/out"
	while read -r name; do
		[[ $name =~ ^($3)$ ]] || fail "in a container (${words[*]}): $name was skipped" "$TMP/out"
	done < <(sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .*Skipped.*/\1/p' "$TMP/out")
	! grep -q Traceback "$TMP/out" || fail "a traceback" "$TMP/out"
	say "ok    in a container (${words[*]:-as it is}): $2"
}

inside -- 'local.share|verbs.map.regions|verbs.copy.rc|rdmacm.dgram|clients.user.(loopback|veth)' 'local.share|clients.user.veth'
inside -- 'verbs.(ib.rc|ib_hops.ud)|rdmacm.fabric|umad.messages|clients.pingpong.fabric-hops' ''
inside ipv4 taken -- 'verbs.(roce6?|ib).rc|rdmacm.fabric|verbs.iwarp_crc.errors|rdmacm.(address|dgram)|preload.data|clients.(tool|user.loopback)' \
	'verbs.roce6.rc|verbs.iwarp_crc.errors'
inside namespaces -- 'attack.stranger_knows_a_connection|rdmacm.multicast|clients.user.veth' 'attack.*'
done_testing
