#!/bin/bash
# SPDX-License-Identifier: MIT
# fabric_faults.sh [PART]: subnets that are not as they should be, as OpenSM and the diagnostics see them: two managers and keys
# (managers), links and switches that fail and GUIDs that two nodes have (damage), the ways that packets take (paths).
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/fabric_words.sh
. "$HERE/fabric_words.sh"
on_a_fabric "$@"
shopt -s extglob # the zeros in front of a GUID
EXAMPLES=/usr/share/doc/ibsim-utils/net-examples

# file NAME: what is read is in a file that the ordinary user can read.
file() { cat >"$TMP/$1" && chmod 644 "$TMP/$1"; }

# ---- managers ----
managers() {
	others_descriptions
	a_real_cluster
	partitions
	two_managers
	management_keys
}

# others_descriptions: the files that ibsim comes with.
others_descriptions() {
	local net host
	if [ ! -d "$EXAMPLES" ]; then
		say "(ibsim-utils is not installed: its examples are left out)"
		return
	fi
	for net in "$EXAMPLES"/net*; do
		up "$net"
		host=$(fabric hosts | awk 'NR == 2 { print $1 }')
		FROM=$host sweep || fail "opensm -o on ibsim's ${net##*/}" "$TMP/out" "$OSM/log"
		say "ok    opensm -o on ibsim's ${net##*/}"
	done
}

# a_real_cluster: nodes whose description says that they are Mellanox's are asked for an attribute of Mellanox's.
a_real_cluster() {
	file cluster <<-'END'
		vendid=0x2c9
		devid=0xcb20
		sysimgguid=0xec0d9a0300b4d1f0
		switchguid=0xec0d9a0300b4d1f0(ec0d9a0300b4d1f0)
		Switch	36 "S-ec0d9a0300b4d1f0"		# "MF0;ib1:MSB7800/U1" enhanced port 0 lid 2 lmc 0
		[1]	"H-0c42a10300aaaaaa"[1](c42a10300aaaaaa) 		# "r1n1 mlx5_0" lid 1 4xEDR
		[3]	"H-0c42a10300aaaacc"[1](c42a10300aaaacc) 		# "r1n2 mlx5_0" lid 4 4xEDR

		vendid=0x2c9
		devid=0x1017
		sysimgguid=0xc42a10300aaaaaa
		caguid=0xc42a10300aaaaaa
		Ca	1 "H-0c42a10300aaaaaa"		# "r1n1 mlx5_0"
		[1](c42a10300aaaaaa) 	"S-ec0d9a0300b4d1f0"[1]		# lid 1 lmc 0 "MF0;ib1:MSB7800/U1" lid 2 4xEDR

		vendid=0x2c9
		devid=0x1017
		sysimgguid=0xc42a10300aaaacc
		caguid=0xc42a10300aaaacc
		Ca	1 "H-0c42a10300aaaacc"		# "r1n2 mlx5_0"
		[1](c42a10300aaaacc) 	"S-ec0d9a0300b4d1f0"[3]		# lid 4 lmc 0 "MF0;ib1:MSB7800/U1" lid 2 4xEDR
	END
	up "$TMP/cluster"
	FROM='r1n1 mlx5_0' sweep || fail "opensm -o on a description of a cluster" "$TMP/out" "$OSM/log"
	well "ibnetdiscover there" '"r1n2 mlx5_0" lid [1-9]' 'r1n2 mlx5_0' ibnetdiscover
	! says out 'bad status' || fail "an attribute is refused" "$TMP/out"
	say "ok    opensm -o on a description of a cluster, whose nodes have another vendor's attribute"
}

# pkeys LABEL YES|NO KEY ARGS...: smpquery pkeys from node4 shows the key, or does not.
pkeys() {
	local label=$1 expected=$2 key=$3 shown=no
	shift 3
	at node4 smpquery "$@" || fail "$label: smpquery $*" "$TMP/out"
	! says out "$key" || shown=yes
	if [ "$shown" = "$expected" ]; then say "ok    $label"; else fail "$label" "$TMP/out"; fi
}

partitions() {
	up star:4
	file partitions <<-END
		Default=0x7fff, ipoib : ALL=full;
		Blue=0x0123 : $(guid_of node1)=full, $(guid_of node2)=limited;
	END
	sweep -P "$TMP/partitions" || fail "opensm -o with partitions" "$TMP/out" "$OSM/log"
	say "ok    opensm -o with partitions"
	pkeys "a full member has the key" yes 0x8123 pkeys "$(lid_of node1)"
	pkeys "a limited one has the limited key" yes 0x0123 pkeys "$(lid_of node2)"
	pkeys "who is no member has none" no 123 pkeys "$(lid_of node3)"
	pkeys "nor is the default lost" yes 0xffff pkeys "$(lid_of node3)"
	pkeys "a switch enforces it where a member is" yes 0x8123 -D pkeys 0,1 1
	pkeys "and nowhere else" no 123 -D pkeys 0,1 3
}

# masters HOST [STANDBY]: sminfo on node3 says who manages, and who waits; it writes GUIDs without zeros in front.
masters() {
	at node3 sminfo && says out "sm guid 0x${GUID[$1]##0x*(0)},.*SMINFO_MASTER" || return 1
	[ $# -eq 1 ] || { at node3 sminfo "${LID[$2]}" && says out SMINFO_STANDBY; }
}

# The standby polls the master each second, and gives up after two polls.
two_managers() {
	local -A LID=() GUID=()
	up star:4
	file standby <<-END
		sminfo_polling_timeout 1000
		polling_retry_number 2
	END
	start_sm node1 -F "$TMP/standby" -p 10
	learn
	launch_sm node2 -F "$TMP/standby" -p 5
	until_true "$PATIENCE" masters node1 node2 || fail "no master and standby" "$TMP/out" "$OSM/log_node1" "$OSM/log_node2"
	say "ok    a second OpenSM waits"
	kill_hard sm_node1
	until_true "$PATIENCE" masters node2 || fail "the standby does not take over" "$TMP/out" "$OSM/log_node2"
	say "ok    kill -9 of the master: the standby takes over"
	well "and its SA answers" 'dump' node3 saquery NR
	launch_sm node1 -F "$TMP/standby" -p 10
	until_true "$PATIENCE" masters node1 node2 || fail "no handover" "$TMP/out" "$OSM/log_node1" "$OSM/log_node2"
	say "ok    and hands over to one of higher priority"
	all_active || fail "ports went down meanwhile"
	stop sm_node2
	stop sm_node1
}

management_keys() {
	local key=0x1122334455667788 lid
	up star:4
	file keys <<-END
		m_key $key
		m_key_lease_period 0
		m_key_protection_level 2
	END
	start_sm node1 -F "$TMP/keys"
	lid=$(lid_of node3)
	refused "a port with an M_Key is silent to who has it not" 'failed|timeout' node2 smpquery -t 100 nodeinfo "$lid"
	well "and answers who has" 'Channel Adapter' node2 smpquery -y $key nodeinfo "$lid"
	well "it has counted" 'MkeyViolations:\.+[1-9]' node2 smpquery -y $key portinfo "$lid" 1
	until_true 10 grep -q 'num:256' "$OSM/log_node1" || fail "no trap 256" "$OSM/log_node1"
	say "ok    and told OpenSM, by trap 256"
	stop sm_node1
}

# ---- damage ----
damage() {
	local -A LID=() GUID=()
	up star:4
	start_sm node1 -s 5 --perfmgr --perfmgr_sweep_time_s 1
	learn
	everybody_pings
	errors_are_found
	a_client_stops
	cables_flap
	stop sm_node1
	a_switch_is_off
	two_of_a_guid
}

# learn: LIDs and GUIDs of the hosts of star:4.
learn() {
	local host
	for host in node1 node2 node3 node4; do
		LID[$host]=$(lid_of $host) GUID[$host]=$(guid_of $host)
	done
}

# pings FROM ARGS...: none of twenty is lost.
pings() { at "$1" ibping -f -c 20 "${@:2}" && says out ' 0% packet loss'; }

everybody_pings() {
	local from to
	for to in node1 node2 node3 node4; do
		start "ping_$to" A --host $to ibping -S
		[ $to = node2 ] || until_true 10 pinged "${LID[$to]}" || fail "ibping" "$TMP/out"
	done
	for from in node1 node2 node3 node4; do
		for to in node1 node2 node3 node4; do
			[ $from != $to ] || continue
			pings $from "${LID[$to]}" || fail "ibping from $from to $to by LID" "$TMP/out"
			pings $from -G "${GUID[$to]}" || fail "ibping from $from to $to by GUID" "$TMP/out"
		done
	done
	say "ok    ibping from everybody to everybody, by LID and by GUID"
}

# named_alone: the two ends of node3's cable have errors, and no other port.
named_alone() {
	says out '^Errors for .*"S1"' && says out '^Errors for "node3"' && says out ' port 3: \[SymbolErrorCounter == [1-9]' &&
		[ "$(grep -c '^Errors for' "$TMP/out")" = 2 ] && says out ' 2 ports have errors'
}

# What a bad cable corrupts is counted where it arrives.
errors_are_found() {
	fabric inject 'node3[1]' corrupt=50% >"$TMP/out" 2>&1 || fail "fabric inject" "$TMP/out"
	at node2 ibping -f -t 50 -c 20 "${LID[node3]}" || true
	fabric inject 'node3[1]' none >"$TMP/out" 2>&1 || fail "fabric inject" "$TMP/out"
	at node4 ibqueryerrors || true
	named_alone || fail "ibqueryerrors does not name the link" "$TMP/out"
	say "ok    ibqueryerrors names the link with errors, and no other"
	until_true "$PATIENCE" says osm/log_node1 'perfmgr_log_errors: .*SymbolErrorCounter.*node "(S1|node3)"' ||
		fail "OpenSM's performance manager does not see them" "$OSM/log_node1"
	say "ok    and so does OpenSM's performance manager"
}

a_client_stops() {
	kill -STOP "${PID[ping_node3]}"
	at node2 ibping -f -t 50 -c 5 "${LID[node3]}" || true
	says out ' 100% packet loss' || fail "a server of ibping that stands still answers" "$TMP/out"
	well "a server that stands still is missed, others are not" ' 0% packet loss' node2 ibping -f -c 100 "${LID[node4]}"
	well "nor is OpenSM, from its own host" 'dump' node3 saquery NR
	kill -CONT "${PID[ping_node3]}"
	until_true 10 pinged "${LID[node3]}" || fail "it does not go on" "$TMP/out"
	say "ok    and it goes on when it may"
}

cables_flap() {
	local pid
	pid=$(fabric_pid)
	flap default S1 2 "${IDENTITY[@]}" >"$TMP/out" 2>&1 || fail "flaps" "$TMP/out"
	until_true "$PATIENCE" all_active || fail "ports stay down" "$OSM/log_node1"
	[ "$(fabric_pid)" = "$pid" ] || fail "it is another fabric"
	kill -0 "$pid" || fail "the fabric is gone"
	until_true "$PATIENCE" pinged "${LID[node3]}" || fail "nobody answers afterwards" "$TMP/out"
	say "ok    a thousand flaps of cables: all ports are ACTIVE again"
}

knows() { at node1 saquery NR && [ "$(grep -c 'NodeRecord dump' "$TMP/out")" = "$1" ]; }
avoids() { at node1 ibtracert "$2" "$3" && ! says out "\"$1\""; }

# A switch whose cables are all cut is one without power: the one in the middle of a path.
a_switch_is_off() {
	local core from to ports
	up fat-tree:4
	start_sm node1 -s 5
	from=$(lid_of node1) to=$(lid_of node16)
	at node1 ibtracert "$from" "$to" || fail "ibtracert" "$TMP/out"
	core=$(grep -o 'core[1-4]' "$TMP/out" | head -n 1)
	ports=("${core}[1]" "${core}[2]" "${core}[3]" "${core}[4]")
	fabric cut "${ports[@]}" >"$TMP/out" 2>&1 || fail "fabric cut" "$TMP/out"
	until_true "$PATIENCE" knows 35 || fail "OpenSM does not miss the switch" "$TMP/out" "$OSM/log_node1"
	until_true "$PATIENCE" avoids "$core" "$from" "$to" || fail "no path around it" "$TMP/out" "$OSM/log_node1"
	say "ok    a switch without power: paths go around it"
	fabric mend "${ports[@]}" >"$TMP/out" 2>&1 || fail "fabric mend" "$TMP/out"
	until_true "$PATIENCE" all_active || fail "it does not come back" "$OSM/log_node1"
	until_true "$PATIENCE" knows 36 || fail "OpenSM does not know it again" "$TMP/out" "$OSM/log_node1"
	say "ok    and comes back"
	stop sm_node1
}

two_of_a_guid() {
	file twins <<-'END'
		Switch 4 "S1"
		[1] "node1"[1]
		[2] "node2"[1]
		[3] "node3"[1]

		caguid=0x0002c90000000010
		Ca 1 "node2"

		caguid=0x0002c90000000010
		Ca 1 "node3"

		Ca 1 "node1"
	END
	fabric down >/dev/null 2>&1 || true
	fabric up --quiet --sm=off "$TMP/twins" >"$TMP/out" 2>&1 || fail "fabric up with two of a GUID" "$TMP/out"
	says out "node3 has a GUID of node2, 0x0002c90000000010" || fail "no warning" "$TMP/out"
	say "ok    two nodes of one GUID: a warning"
	launch_sm node1
	until_true "$PATIENCE" says osm/log_node1 'ERR 0D01: Found duplicated node GUID' || fail "OpenSM does not see them" "$OSM/log_node1"
	say "ok    and OpenSM reports them"
	stop sm_node1
}

# ---- paths ----

# What ibtracert says of the way from each host to each other one, by the tables of switches, is the way that packets take.
paths() {
	local host lids=()
	command -v tshark >/dev/null || skip "needs tshark"
	up fat-tree:4
	start_sm node1 -s 0
	for host in node{1..16}; do
		lids+=("$(lid_of "$host")")
	done
	"${IDENTITY[@]}" touch "$OSM/paths.pcapng"
	fabric capture "$OSM/paths.pcapng" >"$TMP/out" 2>&1 || fail "fabric capture" "$TMP/out"
	for host in node{1..16}; do
		# shellcheck disable=SC2016 # $lid is the shell's on the host
		at "$host" bash -c 'own=$1; shift; for lid; do [ $own = $lid ] || { ibtracert $own $lid && perfquery $lid 1 >/dev/null; } || exit; done' \
			bash "${lids[${host#node} - 1]}" "${lids[@]}" || fail "ibtracert and perfquery from $host" "$TMP/out"
		cat "$TMP/out" >>"$TMP/traced"
	done
	fabric capture stop >"$TMP/out" 2>&1 || fail "fabric capture stop" "$TMP/out"
	tshark -n -r "$OSM/paths.pcapng" -Y 'infiniband.mad.mgmtclass == 4 && infiniband.mad.method == 1' -T fields -e infiniband.lrh.slid \
		-e infiniband.lrh.dlid -e infiniband.mad.transactionid -e frame.interface_name >"$TMP/captured" 2>/dev/null
	python3 - "$TMP/traced" "$TMP/captured" <<-'END' >"$TMP/out" 2>&1 || fail "packets take other ways than ibtracert says" "$TMP/out"
		import re, sys
		said, passed = {}, {}
		for line in open(sys.argv[1]):
		    lid = re.search(r' lid (\d+)-', line)
		    name = re.search(r'"(.*)"', line)
		    if line.startswith("From"):
		        source, way = int(lid[1]), [name[1]]
		    elif line.startswith("To"):
		        said[source, int(lid[1])] = way
		    elif name:
		        way.append(name[1])
		for line in open(sys.argv[2]):
		    source, target, tid, link = line.rstrip("\n").split("\t")
		    passed.setdefault((int(source, 0), int(target, 0), tid), []).append(re.findall(r'([^ \[]+)\[', link))
		seen = set()
		for (source, target, tid), links in passed.items():
		    if (source, target) not in said:
		        continue
		    at = said[source, target][0]
		    way = [at]
		    for ends in links:
		        assert at in ends, (way, links)
		        at = ends[1 - ends.index(at)]
		        way.append(at)
		    assert way == said[source, target], (way, said[source, target])
		    seen.add((source, target))
		assert len(said) == 240 and seen == set(said), (len(said), len(seen))
	END
	say "ok    packets between all pairs of fat-tree:4 pass the switches that ibtracert names, in that order"
	tables
	stop sm_node1
}

# has_tables unicast|multicast PROGRAM ARGS...: what it prints is what the switches have, as `anyrdma fabric tables` shows it.
has_tables() {
	local kind=$1
	shift
	at node3 "$@" || return 1
	fabric tables >"$TMP/own" || return 1
	python3 - "$kind" "$TMP/out" "$TMP/own" <<-'END' >"$TMP/differences" 2>&1
		import re, sys
		kind, dumped, own = sys.argv[1], set(), set()
		for line in open(sys.argv[2]):
		    if head := re.match(r"(Unicast|Multicast) m?lids .*\((\w+)\):$", line):
		        assert head[1].lower() == kind, line
		        switch, columns = head[2], {}
		    elif "Ports:" in line:
		        columns = {m.start(): int(m[0]) for m in re.finditer(r"\d+", line)}
		    elif entry := re.match(r"(0x[0-9a-f]{4})\s+(\d{3}) :", line):
		        dumped.add((switch, int(entry[1], 16), (int(entry[2]),)))
		    elif entry := re.match(r"0x[0-9a-f]{4}", line):
		        dumped.add((switch, int(entry[0], 16), tuple(columns[m.start()] for m in re.finditer("x", line) if m.start() > 1)))
		for line in list(open(sys.argv[3]))[1:]:
		    switch, lid, *ports = line.split()
		    if (int(lid, 0) >= 0xc000) == (kind == "multicast"):
		        own.add((switch, int(lid, 0), tuple(map(int, ports))))
		print("only dumped:", sorted(dumped - own), "only own:", sorted(own - dumped))
		assert own == dumped and len(own) >= (20 * 36 if kind == "unicast" else 8), (len(own), len(dumped))
	END
}

# tables: what the diagnostics read out of switches, of LIDs and of a group with members at five edges.
tables() {
	local host sm each dump
	sm=$(lid_of node1)
	for host in node1 node6 node7 node12 node16; do
		at "$host" "$HERE/join.py" "$sm" "$(guid_of "$host")" || fail "$host cannot join a group" "$TMP/out"
	done
	until_true "$PATIENCE" has_tables multicast dump_fts -M || fail "dump_fts -M: not the tables of switches" "$TMP/differences" "$TMP/out"
	say "ok    dump_fts -M: multicast tables as the switches have them"
	well "saquery MFTR has them, too" 'MFT Record dump' node3 saquery MFTR
	each='set -o pipefail; for lid in $(ibswitches | sed -nE "s/.* lid ([0-9]+) .*/\1/p"); do ibroute '
	has_tables unicast dump_fts || fail "dump_fts: not the tables of switches" "$TMP/differences" "$TMP/out"
	say "ok    dump_fts: unicast tables as the switches have them"
	has_tables unicast bash -c "$each \$lid || exit; done" || fail "ibroute: not the tables of switches" "$TMP/differences" "$TMP/out"
	has_tables multicast bash -c "$each -M \$lid || exit; done" || fail "ibroute -M: not the tables of switches" "$TMP/differences" "$TMP/out"
	say "ok    ibroute and ibroute -M, of each switch: likewise"
	for dump in dump_lfts:unicast dump_mfts:multicast; do
		has_tables "${dump#*:}" "${dump%:*}" || fail "${dump%:*}: not the tables of switches" "$TMP/differences" "$TMP/out"
	done
	say "ok    dump_lfts and dump_mfts: likewise"
	at node3 bash -c 'dump_fts >lfts && ibnetdiscover --cache found >/dev/null && check_lft_balance -l lfts -i found' ||
		fail "check_lft_balance" "$TMP/out"
	say "ok    check_lft_balance"
}

case ${1:-all} in
managers | damage | paths) "$1" ;;
all) managers && damage && paths ;;
*) fail "no such part: $1" ;;
esac
fabric down >/dev/null 2>&1 || true
done_testing
