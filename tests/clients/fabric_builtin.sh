#!/bin/bash
# SPDX-License-Identifier: MIT
# fabric_builtin.sh: the built-in subnet manager, judged by infiniband-diags and by OpenSM, as an ordinary user: what it sets up, what
# its SA says, how it makes way for OpenSM, and how it comes back.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/fabric_words.sh
. "$HERE/fabric_words.sh"
on_a_fabric "$@"

# managed TOPOLOGY: another fabric in place of the one that is there, with its own manager.
managed() {
	fabric down >/dev/null 2>&1 || true
	fabric up --quiet "$@" >"$TMP/up" 2>&1 || fail "fabric up $*" "$TMP/up"
}

is_builtin() { fabric status | grep -q '^Subnet manager: built in, on node1, port 1 (LID '; }

# ---- what it sets up ----
comes_up() {
	local shape
	for shape in pair ring:6 torus:3x3 dragonfly:2,1,2 fat-tree:4; do
		managed "$shape"
		all_active && is_builtin || fail "$shape is not up at once" "$TMP/up"
		say "ok    $shape is up at once"
	done
	well "it is an SM of priority 0" 'sm lid 1 sm guid 0x[0-9a-f]+, activity count [0-9]+ priority 0 state 3 SMINFO_MASTER' node9 sminfo
	well "of which its port tells" 'IsSM$' node9 smpquery portinfo 1
	well "hosts have LIDs in their order" 'Base lid: 9$' node9 ibstat
	well "and know who manages" 'SM lid: 1$' node9 ibstat
	well "ibnetdiscover" '^Switch' node3 ibnetdiscover
	[ "$(grep -c '^Ca' "$TMP/out")" = 16 ] || fail "ibnetdiscover: not all hosts" "$TMP/out"
	well "ibqueryerrors finds nothing" 'nodes checked' node3 ibqueryerrors
	all_traced
}

# all_traced: between any two hosts there is a path, by ibtracert's reading of the tables.
all_traced() {
	local a b
	for a in 1 6 16; do
		for b in $(seq 1 16); do
			[ "$a" = "$b" ] || at "node$a" ibtracert "$a" "$b" && continue
			fail "ibtracert $a $b" "$TMP/out"
		done
	done
	say "ok    ibtracert finds a path from three hosts to all"
}

# ---- what its SA says is what OpenSM's says ----
# Records in some order, without what differs: the ports that OpenSM's questions came in by, its counter of what it did, what else it
# can do, and what it sets that nothing here depends on.
records() {
	at "$1" saquery "${@:2}" || true
	awk '/^[^ \t]/ { print "\f" } { print }' "$TMP/out" | tr '\n\f' '\t\n' | sort | tr '\t' '\n' |
		grep -Ev '^$|LocalPort:|port_num\.|ActCount|MulticastFDBTop|apability mask|VLStallCount|HoqLife|PartEnforce' || true
}

QUESTIONS=("CPI" "NR" "PIR" "SWIR" "SMIR" "LR" "PR" "PR --slid 2" "PR --slid 3 --dlid 4" "MCMR" "GIR" "PKTR" "--smkey 1 PKTR" "NR 3" "PIR 5" "-s" "-g" "-m" "-L" "-G")

says_what_opensm_says() {
	local question i=0
	managed tree:2,2,2
	for question in "${QUESTIONS[@]}"; do
		# shellcheck disable=SC2086
		records node2 $question >"$TMP/own_$((i++))"
	done
	fabric sm opensm --host node1 >"$TMP/out" 2>&1 || fail "opensm beside it" "$TMP/out"
	i=0
	for question in "${QUESTIONS[@]}"; do
		# shellcheck disable=SC2086
		records node2 $question >"$TMP/osm_$i"
		[ -s "$TMP/osm_$i" ] && cmp -s "$TMP/own_$i" "$TMP/osm_$i" || fail "saquery $question differs" "$TMP/own_$i" "$TMP/osm_$i"
		say "ok    saquery $question: as OpenSM answers it"
		i=$((i + 1))
	done
	fabric sm stop
}

# ---- its SA at work ----
answers() {
	managed fat-tree:4
	well "all paths arrive, in some 380 segments" 'PathRecord dump' node2 saquery PR
	[ "$(grep -c dlid "$TMP/out")" = 1296 ] || fail "saquery PR: not all paths" "$TMP/out"
	well "also at its own host" 'PathRecord dump' node1 saquery PR
	[ "$(grep -c dlid "$TMP/out")" = 1296 ] || fail "saquery PR on node1: not all paths" "$TMP/out"
	well "VLs of each SL" 'VL: 0\| 1\| 2\|' node5 saquery SL2VL
	well "arbitration of VLs" dump node5 saquery VLAR
	well "multicast forwarding tables" dump node5 saquery MFTR
	start ping_server A --host node16 ibping -S
	until_true "$PATIENCE" pinged 16 || fail "ibping by LID" "$TMP/out"
	well "a path by GUID is asked for, and taken" ' 0% packet loss' node5 ibping -c 1 -G "$(guid_of node16)"
	stop ping_server
}

# ---- cables ----
reroutes() {
	local cut
	managed fat-tree:4
	at node1 ibtracert 1 16 || fail "ibtracert 1 16" "$TMP/out"
	cut=$(sed -n 's/^\[1\] -> switch port .*"\(.*\)"$/\1/p' "$TMP/out")[$(sed -n '3s/^\[\([0-9]*\)\].*/\1/p' "$TMP/out")]
	cp "$TMP/out" "$TMP/before"
	fabric cut "$cut" >"$TMP/out" || fail "cut $cut" "$TMP/before" "$TMP/out"
	well "a cut cable is routed around at once" '^To ca .* lid 16-16' node1 ibtracert 1 16
	cmp -s "$TMP/out" "$TMP/before" && fail "by another path" "$TMP/out"
	fabric cut 'node16[1]' >"$TMP/out"
	well "a host that is cut off" 'State: Down' node16 ibstat
	refused "has no path" 'not|fail|No|ERR' node1 timeout 5 ibtracert 1 16
	fabric mend 'node16[1]' "$cut" >"$TMP/out"
	all_active || fail "all cables are whole, and not all ports ACTIVE"
	well "with its LID it comes back" 'Base lid: 16$' node16 ibstat
	well "and all is as it was" . node1 ibtracert 1 16
	cmp -s "$TMP/out" "$TMP/before" || fail "not the same path" "$TMP/before" "$TMP/out"
}

# ---- other managers ----
lids() { fabric hosts | awk 'NR > 1 { print $1, $5 }'; }

makes_way() {
	managed star:4
	lids >"$TMP/lids"
	fabric sm opensm --host node3 >"$TMP/out" 2>&1 || fail "opensm beside it" "$TMP/out"
	well "OpenSM on another host takes over" "sm lid 3 .* SMINFO_MASTER" node2 sminfo
	fabric status >"$TMP/out"
	says out '^Subnet manager on node3, port 1' || fail "status does not say so" "$TMP/out"
	at node2 smpquery portinfo 1 && ! says out 'IsSM$' || fail "the built-in one has not made way" "$TMP/out"
	lids | cmp -s - "$TMP/lids" || fail "LIDs have changed"
	grep -q ERR "$RUN_DIR/net-${NAMESPACES[0]}/fabric-default/opensm/opensm.log" && fail "OpenSM complains" "$TMP/out"
	say "ok    it makes way, LIDs stay, and OpenSM complains of nothing"
	fabric sm stop
	fabric status >"$TMP/out"
	says out '^No subnet manager; the built-in one returns when a link moves' || fail "status without one" "$TMP/out"
	fabric cut 'node4[1]' >"$TMP/out"
	until_true "$PATIENCE" is_builtin || fail "it does not come back" "$TMP/out"
	well "it comes back when it is needed" 'sm lid 1 .* priority 0 state 3' node2 sminfo
	lids | cmp -s - "$TMP/lids" || fail "LIDs have changed"
	fabric mend 'node4[1]' >"$TMP/out"
	all_active || fail "and does not work" "$TMP/out"
	fabric sm opensm --host node1 -- -o >"$TMP/out" 2>&1 || fail "opensm -o on its own host" "$TMP/out"
	say "ok    OpenSM on its own host runs once"
}

can_be_off() {
	up star:4
	fabric status >"$TMP/out"
	says out '^Ports with a cable: 8 INIT\.$' || fail "--sm=off: ports are not in INIT" "$TMP/out"
	says out 'No subnet manager: .anyrdma fabric sm opensm. starts one' || fail "--sm=off: status" "$TMP/out"
	say "ok    --sm=off leaves ports in INIT"
}

# A fabric for as long as somebody runs on it: --fabric.
is_there() { fabric status >"$TMP/status" 2>&1; }
is_gone() { ! is_there; }
brought_up() { fabric up --quiet pair >"$TMP/up" 2>&1; } # one that has just ended may have its directory for a moment

comes_with_its_programs() {
	local i
	fabric down >/dev/null 2>&1 || true
	for i in 1 2 3; do
		start server A --fabric ibv_rc_pingpong -c -p 18600
		start client A --fabric bash -c 'until ibv_rc_pingpong -c -p 18600 localhost; do sleep 0.1; done'
		wait "${PID[client]}" && wait "${PID[server]}" || fail "a pair on a fabric of its own" "$TMP/server" "$TMP/client"
		until_true "$PATIENCE" is_gone || fail "it stays when its programs have ended" "$TMP/status"
	done
	unset 'PID[client]' 'PID[server]'
	say "ok    two programs that begin at once bring one fabric up, which ends with them"
	! run A --fabric=pair bash -c 'ibstat | grep -q "State: Active" && exit 7' || fail "a program's failure is lost"
	until_true "$PATIENCE" is_gone || fail "it stays" "$TMP/status"
	[ "$(run A --fabric=pair bash -c 'echo $ANYRDMA_HOST')" = node1 ] || fail "not on the first host"
	until_true "$PATIENCE" is_gone || fail "it stays" "$TMP/status"
	start sleeper A --fabric=pair sleep 1000
	until_true "$PATIENCE" is_there || fail "it does not come up" "$TMP/sleeper"
	[ "$(run A --fabric bash -c 'echo $ANYRDMA_HOST')" = node2 ] || fail "not on the next host"
	is_there || fail "it ends before its last program"
	kill_hard sleeper
	until_true "$PATIENCE" is_gone || fail "it stays behind a program that was killed" "$TMP/status"
	# Its users hold a FIFO, which one of them fills as fast as it can.
	start noisy A --fabric=pair python3 -c 'import os
print("begins", flush=True)
while True:
    try:
        os.write(200, bytes(65536))
    except BlockingIOError:
        pass'
	until_true "$PATIENCE" says noisy begins || fail "it does not begin" "$TMP/noisy"
	for i in 1 2 3; do
		is_there || fail "it does nothing but read what a program writes" "$TMP/status"
	done
	kill_hard noisy
	until_true "$PATIENCE" is_gone || fail "it stays behind a noisy program" "$TMP/status"
	say "ok    it lasts as long as the last of them, however that ends"
	until_true "$PATIENCE" brought_up || fail "fabric up" "$TMP/up"
	run A --fabric true
	is_there || fail "one that was brought up by hand ends with a program"
	fabric down
	! run A --fabric=nonsense true >"$TMP/out" 2>&1 && says out nonsense || fail "a topology that there is not" "$TMP/out"
	say "ok    one that was brought up by hand stays; a wrong topology is told"
}

comes_with_its_programs
comes_up
says_what_opensm_says
answers
reroutes
makes_way
can_be_off
fabric down
