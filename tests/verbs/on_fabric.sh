#!/bin/bash
# SPDX-License-Identifier: MIT
# on_fabric.sh WORLD PROGRAM [PATTERN]: a theme on a host with two ports, three switches between them; its peers are on
# another host. Under the built-in subnet manager; the theme "subnet" under OpenSM, with two LIDs a port and partitions.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/../clients/lib.sh"
theme=${2##*verbs_}
FABRIC=$HERE/../verbs/two_spines.net
[ "$theme" != subnet ] || FABRIC_SM=off
enter "$1" "$@"
shift

# guid PORT: of node1.
guid_of() { the_fabric hosts | awk -v port="$1" '$1 == "node1" && $3 == port { print $6 }'; }

lids_and_partitions() {
	local guids
	guids=("$(guid_of 1)" "$(guid_of 2)")
	cat >"$TMP/partitions" <<-END
		Default=0x7fff, ipoib : ALL=full;
		Blue=0x0123 : ${guids[0]}=full, ${guids[1]}=limited;
		Red=0x0124 : ${guids[0]}=limited, ${guids[1]}=limited;
	END
	[ -n "$(command -v opensm || command -v /usr/sbin/opensm)" ] || skip "needs opensm"
	the_fabric sm opensm -- -l 1 -P "$TMP/partitions" >"$TMP/sm" 2>&1 || fail "fabric sm opensm" "$TMP/sm"
}

# join_group: both ports, for whoever attaches a queue pair there.
join_group() {
	local port
	for port in 1 2; do
		run A "$HERE/join.py" 1 "$(guid_of $port)" $port >"$TMP/join" 2>&1 || fail "port $port cannot join a group" "$TMP/join"
	done
	export VERBS_GROUP=ff12:401b:ffff::ffff:ffff VERBS_MLID=0xc000
}

# no_bad_packet: no port has taken one with a wrong CRC.
no_bad_packet() {
	the_fabric counters >"$TMP/counters" || fail "fabric counters" "$TMP/counters"
	! has "receive errors" "$TMP/counters" || fail "CRCs of packets were wrong" "$TMP/counters"
}

[ "${ANYRDMA_CRC:-}" != always ] || the_fabric status | has "CRCs are checked" || fail "the fabric checks no CRCs"

case $theme in
subnet) lids_and_partitions ;;
ud) join_group ;;
esac
export ANYRDMA_HOST=node1 VERBS_PEER_HOST=node2 VERBS_PORTS=2
VERBS_TOOL=$ANYRDMA VERBS_FABRIC=$(fabric_process) "$@"
[ "${ANYRDMA_CRC:-}" != always ] || no_bad_packet
