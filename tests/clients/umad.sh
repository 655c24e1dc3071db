#!/bin/bash
# SPDX-License-Identifier: MIT
# umad.sh [PART]: OpenSM, the diagnostics and osmtest, as Debian packages them, as an ordinary user, over fabrics of all shapes.
# Parts: shapes, tools, osmtest, faults, all of them when left out; large.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/fabric_words.sh
. "$HERE/fabric_words.sh"
on_a_fabric "$@"

# ---- any shape, any routing ----
shapes() {
	local shape
	for shape in pair star:4 fat-tree:4 ring:6 torus:3x3 dragonfly:2,1,2; do
		up "$shape"
		if sweep; then say "ok    opensm -o on $shape"; else fail "opensm -o on $shape" "$TMP/out" "$OSM/log"; fi
	done
	routing fat-tree:4 -R updn,no_fallback
	routing fat-tree:4 -R dnup,no_fallback
	routing fat-tree:4 -R ftree,no_fallback
	routing fat-tree:4 -R sssp,no_fallback
	routing fat-tree:4 -R dfsssp,no_fallback
	by_tables_of_a_file
	routing ring:6 -R lash,no_fallback
	routing torus:3x3 -R dor,no_fallback
	routing fat-tree:4 -R nue,no_fallback
	two_qos_levels
	routing star:4 -l 1
	routing star:4 -Q
}

routing() {
	local shape=$1
	shift
	up "$shape"
	if sweep "$@"; then say "ok    opensm $* on $shape"; else fail "opensm $* on $shape" "$TMP/out" "$OSM/log"; fi
}

# What dump_lfts reads out of switches is what the engine `file` writes into them.
by_tables_of_a_file() {
	up ring:6
	start_sm node1 -s 0
	at node3 dump_lfts || fail dump_lfts "$TMP/out"
	grep -v '^Multicast' "$TMP/out" >"$TMP/lfts"
	chmod 644 "$TMP/lfts"
	stop sm_node1
	fabric tables >"$TMP/tables"
	routing ring:6 -R file,no_fallback -U "$TMP/lfts"
	fabric tables | cmp - "$TMP/tables" || fail "opensm -R file: other tables than the file has"
}

# The engine has to be told which way is x and which is y.
two_qos_levels() {
	up torus:5x5
	fabric topology | graph >"$TMP/described"
	printf 'torus 5 5 1\nxp_link 0x%s 0x%s\nyp_link 0x%s 0x%s\n' "$(guid_in S1)" "$(guid_in S2)" "$(guid_in S1)" "$(guid_in S6)" >"$TMP/torus"
	chmod 644 "$TMP/torus"
	if sweep -Q -R torus-2QoS,no_fallback --torus_config "$TMP/torus"; then
		say "ok    opensm -R torus-2QoS on torus:5x5"
	else
		fail "opensm -R torus-2QoS on torus:5x5" "$TMP/out" "$OSM/log"
	fi
}
guid_in() { fabric topology | sed -nE "s/^Switch.*\"S-([0-9a-f]+)\".*\"$1\".*/\1/p"; }

# ---- large ones ----
large() {
	local shape
	for shape in fat-tree:8 fat-tree:16 torus:4x4x4 dragonfly:4,2,2; do
		routing "$shape" "$([ "${shape%:*}" = torus ] && echo -Rdor || echo -Rminhop)"
		fabric topology | graph >"$TMP/described"
		at node3 ibnetdiscover && graph <"$TMP/out" >"$TMP/discovered" || fail "ibnetdiscover of $shape" "$TMP/out"
		cmp "$TMP/described" "$TMP/discovered" || fail "ibnetdiscover finds another $shape"
		say "ok    ibnetdiscover of $shape: $(grep -Ec '^(Switch|Ca)' "$TMP/discovered") nodes, as described"
		[ "$shape" != fat-tree:16 ] || nodes_over_a_bad_cable
	done
	larger_yet
}

# What takes long to say holds up the subnet: it is said in time, or refused.
larger_yet() {
	local i
	fabric down >/dev/null
	fabric up --quiet fat-tree:24 >"$TMP/out" 2>&1 || fail "fabric up fat-tree:24" "$TMP/out"
	! fabric tables >"$TMP/out" 2>&1 && says out 'would be some [0-9]+ lines: which switches\?' || fail "all tables of 720 switches" "$TMP/out"
	fabric tables core1 >"$TMP/out" 2>&1 && [ "$(wc -l <"$TMP/out")" -gt 4176 ] || fail "the table of one" "$TMP/out"
	say "ok    tables of fat-tree:24: those of switches that are named"
	fabric down >/dev/null
	for i in {1..1020}; do printf 'Ca 254 "c%d"\n' $i; done >"$TMP/ports"
	chmod 644 "$TMP/ports"
	up --ip 10.0.0.0/8 "$TMP/ports"
	fabric hosts >"$TMP/out" 2>&1 && [ "$(wc -l <"$TMP/out")" = 259081 ] || fail "hosts with 259,080 ports" "$TMP/out"
	say "ok    hosts with 259,080 ports"
}

# RMPP's answer has 1,344 records in some 750 segments; each that is lost costs the sender's timeout, a second.
nodes_over_a_bad_cable() {
	start_sm node1 -s 0
	fabric inject 'node5[1]' duplicate=10% loss=1% >"$TMP/out" 2>&1 || fail "fabric inject" "$TMP/out"
	until_true 120 all_nodes || fail "not all nodes over a bad cable" "$TMP/out"
	fabric inject 'node5[1]' none >/dev/null
	stop sm_node1
	say "ok    saquery NR of fat-tree:16 over a cable that loses and doubles segments"
}
all_nodes() { at node5 saquery -t 25000 NR && [ "$(grep -c 'NodeRecord dump' "$TMP/out")" = 1344 ]; }

# ---- the diagnostics ----
tools() {
	up fat-tree:4
	before_a_manager
	start_sm node1 -s 0
	what_is_discovered
	what_ports_say
	files_of_a_host
	what_the_sa_says
	what_is_counted
	links_are_switched
	hosts_ping
	what_nobody_does
	by_another_user
	stop sm_node1
	without_a_fabric
	again_from_its_own_description
}

before_a_manager() {
	well "before a subnet manager a port is initializing" 'State: Initializing' node1 ibstat
	well "and has no LID" 'Base lid: 0$' node1 ibstat
	at node1 ibstatus && says out '2: INIT' && says out 'base lid:[[:space:]]+0x0$' && says out 'sm lid:[[:space:]]+0x0$' ||
		fail "ibstatus before a subnet manager" "$TMP/out"
	say "ok    nor by ibstatus"
	well "nor by ibv_devinfo" 'port_lid:[[:space:]]+0$' node1 ibv_devinfo
	says out 'state:[[:space:]]+PORT_INIT' || fail "ibv_devinfo before a subnet manager" "$TMP/out"
	refused "nobody answers for the SA" . node1 timeout 5 saquery
	well "directed routes need no LID" 'NodeType:\.+Switch' node1 smpquery -D nodeinfo 0,1
}

# what_is_discovered: ibnetdiscover's output describes the same fabric again.
what_is_discovered() {
	well "ibnetdiscover" '^Switch' node3 ibnetdiscover
	graph <"$TMP/out" >"$TMP/discovered"
	cp "$TMP/out" "$TMP/description"
	[ "$(grep -c '^Ca' "$TMP/out")" = 16 ] && [ "$(grep -c '^Switch' "$TMP/out")" = 20 ] || fail "nodes are missing" "$TMP/out"
	well "iblinkinfo" Active node3 iblinkinfo
	! grep -q Down "$TMP/out" || fail "a link is down" "$TMP/out"
	for tool in ibhosts:16 ibswitches:20 ibnodes:36; do
		at node3 "${tool%:*}" || fail "${tool%:*}" "$TMP/out"
		[ "$(wc -l <"$TMP/out")" = "${tool#*:}" ] || fail "${tool%:*}: not ${tool#*:} nodes" "$TMP/out"
		say "ok    ${tool%:*}"
	done
}

# graph: nodes by their GUIDs and who is joined to whom, without what a subnet manager says.
graph() { sed 's/#.*//' | awk '/^(Switch|Ca)/ { node = $3; print $1, $2, $3 } /^\[/ { print node, $1, $2 }' | sort; }

what_ports_say() {
	local lid guid
	lid=$(lid_of node3) guid=$(guid_of node3)
	these_agree "$lid" "$guid"
	well "smpquery nodeinfo" 'NodeType:\.+Channel Adapter' node1 smpquery nodeinfo "$lid"
	well "smpquery nodeinfo by GUID" "PortGuid:\.+$guid" node1 smpquery -G nodeinfo "$guid"
	well "smpquery nodedesc" 'node3' node1 smpquery nodedesc "$lid"
	well "smpquery portinfo" 'LinkState:\.+Active' node1 smpquery portinfo "$lid" 1
	well "smpquery switchinfo" 'LinearFdbTop' node1 smpquery -D switchinfo 0,1
	well "smpquery pkeys" '0xffff' node1 smpquery pkeys "$lid"
	well "smpquery sl2vl" 'SL:' node1 smpquery -D sl2vl 0,1 1
	well "smpquery vlarb" 'VL' node1 smpquery -D vlarb 0,1 1
	well "smpquery guidinfo" "0: $guid" node1 smpquery guidinfo "$lid"
	each_attribute_by_each_address "$lid" "$guid"
	well "ibtracert" "To ca.*$lid" node1 ibtracert "$(lid_of node1)" "$lid"
	well "dump_fts" 'lids' node1 dump_fts
}

# these_agree LID GUID: what programs say of node3's port, whose manager is on node1.
these_agree() {
	local lid guid=${2#0x} sm
	lid=$(printf %x "$1") sm=$(lid_of node1)
	well "ibstat says what ibaddr says: the LID" "LID start 0x0*$lid " node3 ibaddr
	well "and the GUID" "GID fe80::$(sed -E 's/.{4}/&:/g; s/:$//; s/(^|:)0+([0-9a-f])/\1\2/g' <<<"$guid")" node3 ibaddr
	well "sminfo: the LID and the GUID of the manager" "sm lid $sm sm guid 0x$(guid_of node1 | sed -E 's/^0x0*//').*MASTER" node3 sminfo
	at node3 ibstat && says out 'State: Active' && says out "SM lid: $sm$" && says out "Port GUID: 0x$guid" && says out 'Rate: 200$' ||
		fail "ibstat" "$TMP/out"
	at node3 ibstatus && says out '4: ACTIVE' && says out "base lid:[[:space:]]+0x$lid$" && says out 'rate:[[:space:]]+200 Gb' &&
		says out "sm lid:[[:space:]]+0x$(printf %x "$sm")$" && says out "gid:.*$(sed -E 's/.{4}/&:/g; s/:$//' <<<"$guid")" ||
		fail "ibstatus" "$TMP/out"
	at node3 ibv_devinfo -v && says out "port_lid:[[:space:]]+$1$" && says out "sm_lid:[[:space:]]+$sm$" && says out 'state:[[:space:]]+PORT_ACTIVE' &&
		says out "GID\\[ *0\\]:[[:space:]]+fe80:0000:0000:0000:$(sed -E 's/.{4}/&:/g; s/:$//' <<<"$guid")" || fail "ibv_devinfo" "$TMP/out"
	say "ok    ibstat, ibstatus and ibv_devinfo: the same LIDs, GUID, state and rate"
}

# each_attribute_by_each_address LID GUID: of node3, and of the switch at its cable, by LID, by GUID and by the route there.
each_attribute_by_each_address() {
	local lid=$1 guid=$2 route switch switch_guid attribute
	route=$(route_to "$lid") switch=$(switch_lid)
	at node1 smpquery nodeinfo "$switch" || fail "smpquery nodeinfo" "$TMP/out"
	switch_guid=$(sed -nE 's/^Guid:\.+//p' "$TMP/out")
	for attribute in nodeinfo nodedesc portinfo pkeys guidinfo sl2vl vlarb; do
		the_same "$attribute" "$lid" "$guid" "$route"
	done
	for attribute in nodeinfo nodedesc "portinfo 1" "portinfo 0" switchinfo "pkeys 1" "sl2vl 1" "vlarb 1"; do
		the_same "$attribute" "$switch" "$switch_guid" 0,1
	done
	say "ok    smpquery of each attribute: the same by LID, by GUID and by directed route"
}

# route_to LID: ports from node1 on, as ibtracert names them: the last of a line is where a packet comes in.
route_to() {
	run A --host node1 ibtracert "$(lid_of node1)" "$1" | sed -nE 's/^\[([0-9]+)\] ->.*/,\1/p' | tr -d '\n' | sed 's/^/0/'
}

# the_same "ATTRIBUTE [PORT]" LID GUID ROUTE
the_same() {
	local attribute=${1% *} port=
	[ "$attribute" = "$1" ] || port=${1#* }
	# shellcheck disable=SC2086 # no port, or one
	{
		at node1 smpquery "$attribute" "$2" $port && grep -v '^#' "$TMP/out" >"$TMP/by_lid" && [ -s "$TMP/by_lid" ] &&
			at node1 smpquery -G "$attribute" "$3" $port && grep -v '^#' "$TMP/out" | cmp - "$TMP/by_lid" &&
			at node1 smpquery -D "$attribute" "$4" $port && grep -v '^#' "$TMP/out" | cmp - "$TMP/by_lid"
	} || fail "smpquery $1 differs by LID, GUID and route" "$TMP/by_lid" "$TMP/out"
}

IN_TREE=/sys/class/infiniband/ib0

# files_of_a_host: counters that follow what happens as long as they are read, and a description that can be written.
files_of_a_host() {
	local lid long
	lid=$(lid_of node3)
	start reader A --host node3 bash -c "while sleep 0.2; do cat $IN_TREE/ports/1/counters/port_rcv_packets; done"
	counted "$lid"
	counted "$lid"
	stop reader
	say "ok    counters of a host, while they are read, are what perfquery says"
	at node3 bash -c "printf 'node3 ib0' >$IN_TREE/node_desc" || fail "node_desc cannot be written" "$TMP/out"
	until_true 10 described "$lid" 'node3 ib0' || fail "smpquery nodedesc does not follow" "$TMP/out"
	say "ok    a description that is written is the node's"
	until_true "$PATIENCE" managed_as 'node3 ib0' || fail "OpenSM does not ask for it" "$TMP/out" "$OSM/log_node1"
	say "ok    and OpenSM, which does not sweep by itself but is told by trap 144, knows it"
	long=$(printf '%0100d' 7)
	at node3 bash -c "printf '%s' ${long//0/x} >$IN_TREE/node_desc" || fail "node_desc cannot be written" "$TMP/out"
	until_true 10 described "$lid" "$(printf 'x%.0s' {1..64})" || fail "a long description" "$TMP/out"
	at node3 bash -c "head -c 100000 /dev/zero >$IN_TREE/node_desc; printf 'node3\tand more' >$IN_TREE/node_desc"
	until_true 10 described "$lid" node3 || fail "a strange description" "$TMP/out"
	say "ok    of one that is too long, or no text, what fits is taken"
}

# counted LID: what perfquery says, its own question included; the file says the same when it is next written.
counted() {
	local packets
	at node1 perfquery "$1" 1 || fail perfquery "$TMP/out"
	packets=$(sed -nE 's/^PortRcvPkts:\.+//p' "$TMP/out")
	until_true 10 shown "$packets" || fail "a host's counter does not become $packets" "$TMP/reader"
}
shown() { [ "$(tail -n 1 "$TMP/reader")" = "$1" ]; }
described() { at node1 smpquery nodedesc "$1" && says out "Node Description:\.+$2$"; }
managed_as() { at node1 saquery NR && says out "NodeDescription\.+$1$"; }

what_the_sa_says() {
	local record
	for record in NR PIR SL2VL PR SMIR LR SWIR MCMR LFTR GIR VLAR; do
		well "saquery $record" 'dump' node5 saquery "$record"
	done
	well "saquery CPI" 'SA ClassPortInfo' node5 saquery CPI
	for record in SR IIR; do
		at node5 saquery "$record" || fail "saquery $record" "$TMP/out"
		say "ok    saquery $record"
	done
	well "saquery PKTR with a key" 'dump' node5 saquery --smkey 1 PKTR
	at node5 saquery PR && [ "$(grep -c 'PathRecord dump' "$TMP/out")" = 1296 ] || fail "1296 paths are not 1296" "$TMP/out"
	say "ok    1296 paths of 36 nodes arrive"
	fabric inject 'node5[1]' duplicate=30% loss=1% >"$TMP/out" 2>&1 || fail "fabric inject" "$TMP/out"
	until_true 60 all_paths || fail "not over a bad cable" "$TMP/out"
	fabric inject 'node5[1]' none >/dev/null
	say "ok    also over a cable that loses and doubles segments"
}

# A question that is itself lost is asked again: saquery gives up after the time it is told.
all_paths() { at node5 saquery -t 6000 PR && [ "$(grep -c 'PathRecord dump' "$TMP/out")" = 1296 ]; }

what_is_counted() {
	local lid
	lid=$(lid_of node2)
	well "perfquery" 'PortXmitPkts:\.+[1-9]' node1 perfquery "$lid" 1
	well "perfquery -x" 'PortXmitPkts:\.+[1-9]' node1 perfquery -x "$lid" 1
	well "perfquery -X, -S, -D, -E" 'PortLocalPhysicalErrors' node1 bash -c "for o in X S D E; do perfquery -\$o $lid 1 || exit; done"
	refused "counters that a port has not" 'not supported|failed' node1 perfquery --vlxmitcounters "$lid" 1
	well "perfquery -R" . node1 bash -c "perfquery -R $lid 1; perfquery $lid 1"
	well "perfquery of all ports of a switch" 'AllPortSelect|PortXmitPkts' node1 perfquery -a "$(switch_lid)"
	well "perfquery, each port" 'PortSelect:\.+3' node1 perfquery -l -a "$(switch_lid)"
	at node1 ibqueryerrors && ! says out 'errors beyond threshold' || says out ' 0 ports have errors' || fail "ibqueryerrors" "$TMP/out"
	say "ok    ibqueryerrors has nothing to say"
}

switch_lid() { run A --host node1 smpquery -D portinfo 0,1 0 | sed -nE 's/^Lid:\.+//p'; }

links_are_switched() {
	local lid
	lid=$(switch_lid)
	well "ibportstate, with the peer by a mixed route" 'Peer PortInfo' node1 ibportstate "$lid" 1 query
	well "ibportstate disable" 'Disabled|Down' node3 ibportstate "$lid" 2 disable
	until_true 10 is_down "$lid" || fail "the port is not down" "$TMP/out"
	well "ibportstate enable" . node3 ibportstate "$lid" 2 enable
	until_true 10 all_active || fail "it does not come back"
	well "ibportstate reset" . node3 ibportstate "$lid" 2 reset
	until_true 10 all_active || fail "it does not come back"
	slower espeed 2 'LinkSpeedExtActive:\.+25\.78125 Gbps' "$lid"
	slower width 1 'LinkWidthActive:\.+1X' "$lid"
}

# slower speed|espeed|width ENABLED PATTERN LID: a link that may not be what it was trains again, and is less.
slower() {
	well "ibportstate $1" "$1|Enabled" node3 ibportstate "$4" 2 "$1" "$2"
	at node3 ibportstate "$4" 2 reset || fail "ibportstate reset" "$TMP/out"
	until_true 10 all_active || fail "a link of another $1 does not come back"
	well "and the link has it" "$3" node3 smpquery portinfo "$4" 2
}

is_down() { at node3 smpquery portinfo "$1" 2 && says out 'LinkState:\.+Down'; }

hosts_ping() {
	start ping A --host node7 ibping -S
	until_true 10 pinged "$(lid_of node7)" || fail "ibping by LID" "$TMP/out"
	say "ok    ibping by LID"
	well "ibping by GUID" ' 0% packet loss' node2 ibping -f -c 10 -G "$(guid_of node7)"
	stop ping
}

what_nobody_does() {
	refused "congestion control is refused" 'failed' node2 ibccquery classportinfo "$(lid_of node1)"
	refused "vendstat is refused" 'fail' node2 vendstat -N "$(switch_lid)"
	well "and OpenSM lives" 'SMINFO_MASTER' node2 sminfo
	at node1 opensm -o -f "$OSM/second" || true
	says out 'another instance' || fail "a second OpenSM on a port" "$TMP/out"
	refused "a host that is not there" 'no host' node99 ibnetdiscover
	refused "nor by the variable" 'no host node99' node1 env ANYRDMA_HOST=node99 ibnetdiscover
}

# A fabric is its user's: to others there is none, nor when they know where it is.
by_another_user() {
	local other=(setpriv --reuid=65533 --regid=65533 --clear-groups --bounding-set=-all --inh-caps=-all env -i "PATH=$PATH")
	setpriv --reuid=65533 --regid=65533 --clear-groups true 2>/dev/null || {
		say "SKIP  part: only root can be another user"
		return
	}
	! "${other[@]}" "$ANYRDMA" run --host node1 ibnetdiscover >"$TMP/out" 2>&1 && says out 'anyrdma fabric up' ||
		fail "ibnetdiscover of another user" "$TMP/out"
	! "${other[@]}" ANYRDMA_DIR="$RUN_DIR" "$ANYRDMA" run --host node1 ibnetdiscover >"$TMP/out" 2>&1 && says out . ||
		fail "ibnetdiscover of another user, who knows the directory" "$TMP/out"
	well "another user's programs find no fabric, and harm none" 'SMINFO_MASTER' node2 sminfo
}

without_a_fabric() {
	fabric down >/dev/null
	run A ibnetdiscover >"$TMP/out" 2>&1 && fail "ibnetdiscover without a fabric"
	says out 'anyrdma fabric up' || fail "no word about how to get a fabric" "$TMP/out"
	[ "$(grep -c 'anyrdma fabric up' "$TMP/out")" = 1 ] || fail "the same twice" "$TMP/out"
	say "ok    without a fabric programs are told what to do, once"
}

again_from_its_own_description() {
	chmod 644 "$TMP/description"
	up "$TMP/description"
	sweep || fail "opensm -o on ibnetdiscover's output" "$TMP/out" "$OSM/log"
	at node3 ibnetdiscover && graph <"$TMP/out" | cmp - "$TMP/discovered" || fail "another fabric than the one described" "$TMP/out"
	say "ok    ibnetdiscover's output describes the same fabric"
}

# ---- osmtest ----
osmtests() {
	local flow
	up star:4
	start_sm node1 -s 0
	for flow in c v s e m t q; do
		at node2 osmtest -f "$flow" -i "$OSM/inventory" -l "$OSM/osmtest.$flow" && says out PASS ||
			fail "osmtest -f $flow" "$TMP/out" "$OSM/osmtest.$flow" "$OSM/log_node1"
		say "ok    osmtest -f $flow"
	done
	stop sm_node1
}

# ---- processes that end, or stop ----
faults() {
	up star:4
	start_sm node1 -s 5
	start ping A --host node3 ibping -S
	until_true 10 pinged "$(lid_of node3)" || fail "ibping" "$TMP/out"
	fabric_is_killed
	fabric_is_stopped
	clients_are_killed
	manager_is_killed
}

# Neither OpenSM nor the server of ibping notices, but for what was on its way.
fabric_is_killed() {
	local lines
	kill -9 "$(fabric_pid)"
	lines=$(wc -l <"$OSM/log_node1")
	sleep 2
	[ $(($(wc -l <"$OSM/log_node1") - lines)) -lt 100 ] || fail "OpenSM floods its log" "$OSM/log_node1"
	[ "$(cpu_ticks "${PID[sm_node1]}")" -lt 100 ] || fail "OpenSM is busy"
	fabric up --quiet star:4 >"$TMP/up" 2>&1 || fail "fabric up again" "$TMP/up" # --sm=auto: OpenSM is there still
	until_true "$PATIENCE" all_active || fail "OpenSM does not bring the new fabric up" "$OSM/log_node1"
	until_true 10 pinged "$(lid_of node3)" || fail "the server of ibping is lost" "$TMP/out"
	fabric status >"$TMP/out" && says out 'Subnet manager on node1' || fail "its port is no subnet manager's" "$TMP/out"
	well "its port is still a subnet manager's" 'CapMask:.*0x[0-9a-f]*[2367abef]$' node1 smpquery -D portinfo 0
	say "ok    kill -9 of the fabric: all go on when it is back"
}

fabric_is_stopped() {
	kill -STOP "$(fabric_pid)"
	sleep 1
	kill -CONT "$(fabric_pid)"
	until_true 10 pinged "$(lid_of node3)" || fail "nothing goes on" "$TMP/out"
	all_active || fail "ports went down meanwhile"
	say "ok    a fabric that stands still for a second goes on"
}

clients_are_killed() {
	local i
	for i in 1 2 3 4 5 6 7 8; do
		start "client$i" A --host node2 bash -c 'while :; do saquery PIR; done'
		sleep "0.1$i"
		kill_hard "client$i"
	done
	well "kill -9 of clients in the middle of an answer harms nobody" 'dump' node2 saquery NR
}

# all_stopped PID: the first thread that gets round to it stops all others; until then they go on.
all_stopped() { ! grep -hs '^State:' /proc/"$1"/task/*/status | grep -vq 'T (stopped)'; }

manager_is_killed() {
	kill -STOP "${PID[sm_node1]}"
	until_true 10 all_stopped "${PID[sm_node1]}" || fail "OpenSM does not stop"
	refused "an SA that stands still does not answer" . node2 timeout 5 saquery
	kill -CONT "${PID[sm_node1]}"
	well "and then does" 'dump' node2 saquery
	kill_hard sm_node1
	refused "a dead one is missed" . node2 sminfo
	start_sm node4 # ports have stayed ACTIVE
	until_true 10 has_master || fail "no other takes its place" "$TMP/out" "$OSM/log_node4"
	say "ok    another takes its place"
}

case ${1:-all} in
shapes) shapes ;;
large) large ;;
tools) tools ;;
osmtest) osmtests ;;
faults) faults ;;
all) shapes && tools && osmtests && faults ;;
*) fail "no such part: $1" ;;
esac
fabric down >/dev/null 2>&1 || true
done_testing
