#!/bin/bash
# SPDX-License-Identifier: MIT
# fabric_data.sh WORLD PART: what programs on hosts see of their subnet: cables that are cut under load (cables), several LIDs of
# a port and service levels (lids), partitions (keys), a P_Key that is written anew (new_key), groups (groups), a cable that
# carries short packets alone (mtu), tables that lead nowhere (tables), programs and a fabric that are killed (deaths), a program
# that lies to the fabric (hostile), programs that stand still (stopped), what ports have counted (counters), what is seen on
# cables (captured); what OpenSM does while they run (managers), what damaged cables do to them (damage).
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
part=${2:-cables}
FABRIC=star:3 FABRIC_SM=${FABRIC_SM:-auto}
case $part in
lids | keys) FABRIC_SM=off ;;
cables) FABRIC=fat-tree:4 FABRIC_SM=auto ;;
counters | captured | deaths | hostile | stopped) FABRIC=tree:4,2,2 FABRIC_SM=auto ;;
managers) FABRIC=fat-tree:4 FABRIC_SM=off ;;
damage) FABRIC=fat-tree:4 FABRIC_SM=auto ;;
mtu) FABRIC=$TMP/short FABRIC_SM=auto ;;
tables) FABRIC=$TMP/triangle FABRIC_SM=auto ;;
esac
[ "$FABRIC_SM" != off ] || [ -n "$(command -v opensm || command -v /usr/sbin/opensm)" ] || skip "needs opensm"
# The ports of hosts take 4096 bytes, the cable between the switches 256.
[ "$part" != mtu ] || cat >"$FABRIC" <<-'END'
	Switch 2 "S1"
	[1] "S2"[1]
	[2] "node1"[1]

	Switch 2 "S2"
	[2] "node2"[1]

	Ca 1 "node1"

	Ca 1 "node2"

	@mtu "S1"[1] 256
END
# Three switches, a host at each; port 1 leads to the next one, port 2 to the one before.
[ "$part" != tables ] || cat >"$FABRIC" <<-'END'
	Switch 3 "S1"
	[1] "S2"[2]
	[3] "node1"[1]

	Switch 3 "S2"
	[1] "S3"[2]
	[3] "node2"[1]

	Switch 3 "S3"
	[1] "S1"[2]
	[3] "node3"[1]

	Ca 1 "node1"

	Ca 1 "node2"

	Ca 1 "node3"
END
enter "$1" "$@"
PATH=$PATH:/usr/sbin

# managed OPTIONS...: by OpenSM.
managed() { the_fabric sm opensm -- "$@" >"$TMP/sm" 2>&1 || fail "fabric sm opensm $*" "$TMP/sm"; }

field() { the_fabric hosts | awk -v host="$1" -v column="$2" '$1 == host { print $column }'; }
lid_of() { field "$1" 5; }
guid_of() { field "$1" 6; }
osm_log() { echo "$RUN_DIR/net-${NAMESPACES[0]}/fabric-world/opensm/opensm.log"; }

# at HOST PROGRAM ARGS...: its output is $TMP/out.
at() { run A --host "$1" timeout "$PATIENCE" "${@:2}" >"$TMP/out" 2>&1; }

# ucx TRANSPORTS TEST ARGS...
ucx() {
	local port=$NEXT_PORT
	NEXT_PORT=$((NEXT_PORT + 1))
	UCX_TLS=$1 UCX_NET_DEVICES=ib0:1 start server A ucx_perftest -t "$2" "${@:3}" -p "$port"
	until_true "$PATIENCE" listens "${PID[server]}" "$port" || true
	UCX_TLS=$1 UCX_NET_DEVICES=ib0:1 start client B ucx_perftest -t "$2" "${@:3}" -p "$port" "$IP4_A"
}

# ---- cables ----
# loaded MIB: so much more has moved, or the pair is done.
loaded() {
	local until
	until=$(($(traffic) + $(counted "$1")))
	until_true "$PATIENCE" load_beyond "$until" || fail "nothing moves" "$TMP/load.server" "$TMP/load.client"
}

load_beyond() { gone "${PID[load.client]}" || traffic_beyond "$1"; }

# The first host's two uplinks, one after the other, whichever the path takes, but never both.
cables() {
	local agg
	start_pair load 4 ib_send_bw -F -s 65536 -D 1 --run_infinitely
	goes_on "nothing is cut"
	for agg in 1 2 1 2 1 2; do
		the_fabric cut "edge1[$agg]" >"$TMP/out" 2>&1 || fail "cut" "$TMP/out"
		goes_on "uplink $agg is cut"
		the_fabric mend "edge1[$agg]" >"$TMP/out" 2>&1 || fail "mend" "$TMP/out"
		goes_on "uplink $agg is mended"
	done
	kill_hard load.client load.server
	pair 4 ib_send_bw -F -s 65536 -n 100
}

# ---- LIDs ----
lids() {
	local bits
	managed -l 1
	for bits in 0 1; do
		export UCX_IB_LID_PATH_BITS=$bits
		ucx rc_verbs,ud_verbs tag_lat -n 500
		verdict "UCX by path bits $bits" 'Final:' ''
		ucx ud_verbs tag_bw -n 100 -s 10003
		verdict "UCX by path bits $bits, datagrams alone" 'Final:' ''
	done
	unset UCX_IB_LID_PATH_BITS
	[ "$WORLD" = fabric ] || only_by_path_bits 1
	pair 4 ib_send_lat -F -n 20 -S 3
	pair 4 ib_write_bw -F -n 20 -S 7
	pair 6 ib_send_bw -F -n 20 -c UD -s 1024 -S 5
	pair 4 ibv_rc_pingpong -c -l 2
	fewer_lids
}

# only_by_path_bits BITS: the packets of UCX's queue pairs have these LIDs alone.
only_by_path_bits() {
	local a b
	command -v tshark >/dev/null || skip "needs tshark"
	the_fabric capture "$TMP/bits.pcapng" 'node1[1]' >"$TMP/out" 2>&1 || fail "fabric capture" "$TMP/out"
	UCX_IB_LID_PATH_BITS=$1 ucx rc_verbs,ud_verbs tag_lat -n 500
	verdict "UCX by path bits $1, captured" 'Final:' ''
	the_fabric capture stop >"$TMP/out" 2>&1 || fail "fabric capture stop" "$TMP/out"
	tshark -n -r "$TMP/bits.pcapng" -Y 'infiniband.bth.destqp > 1' -T fields -e infiniband.lrh.slid -e infiniband.lrh.dlid \
		2>/dev/null | sort -u >"$TMP/pairs"
	a=$(($(lid_of node1) + $1)) b=$(($(lid_of node3) + $1))
	while read -r from to; do
		echo $((from)) $((to))
	done <"$TMP/pairs" | sort -n >"$TMP/numbers"
	printf '%s\n' "$a $b" "$b $a" | sort -n | cmp -s - "$TMP/numbers" || fail "not by the LIDs $a and $b alone" "$TMP/pairs"
	say "ok    and by no other LIDs"
}

# fewer_lids: ports lose their second LIDs under load; what goes by the first ones goes on.
fewer_lids() {
	start_pair load 4 ib_send_bw -F -s 65536 -u 18 -D 1 --run_infinitely
	loaded 1
	at node1 ibv_devinfo && says out 'port_lmc:.*0x01$' || fail "no second LIDs" "$TMP/out"
	the_fabric sm stop
	managed -l 0
	until_true "$PATIENCE" has_one_lid || fail "ports keep their second LIDs" "$TMP/out"
	goes_on "ports lose their second LIDs"
	kill_hard load.client load.server
}

has_one_lid() { at node1 ibv_devinfo && says out 'port_lmc:.*0x00$'; }

# ---- partitions ----
violations() { at "$1" smpquery portinfo "$(lid_of "$1")" 1 && sed -n 's/^PkeyViolations:\.*//p' "$TMP/out"; }

traps() { until_true 10 grep -q "num:$1" "$(osm_log)" || fail "no trap $1" "$(osm_log)"; }

# limited_members LABEL: node2 and node3.
limited_members() {
	HOST_A=(--host node2)
	start_pair limited 4 ib_send_bw -F -n 20 --pkey_index 1 -u 10
	! finish limited.client || fail "two limited members talk" "$TMP/limited.server" "$TMP/limited.client"
	kill_hard limited.server
	broke limited "limited members"
	HOST_A=(--host node1)
	say "ok    two limited members of a partition do not talk$1"
}

# Node1 is a full member of Blue, node2 and node3, the far end, limited ones.
keys() {
	cat >"$TMP/partitions" <<-END
		Default=0x7fff, ipoib : ALL=full;
		Blue=0x0123 : $(guid_of node1)=full, $(guid_of node2)=limited, $(guid_of node3)=limited;
	END
	managed -P "$TMP/partitions"
	pair 4 ib_send_bw -F -n 20 --pkey_index 1
	pair 4 ib_send_lat -F -n 20 -c UD --pkey_index 1
	UCX_IB_PKEY=0x123 ucx rc_verbs,ud_verbs tag_lat -n 500
	verdict "UCX in a partition" 'Final:' ''
	limited_members ": the switch sees to it"
	at node1 ibqueryerrors || true
	says out 'Errors for .*"S1"' && says out 'Port(Rcv|Xmit)ConstraintErrors == [1-9]' || fail "no switch has counted it" "$TMP/out"
	say "ok    and counts it"
	traps 259
	say "ok    and tells OpenSM, by trap 259"
	the_fabric sm stop
	managed -P "$TMP/partitions" -Z off
	limited_members ", nor where switches do not look"
	[ "$(violations node2)" -gt 0 ] || fail "nobody has counted it" "$TMP/out"
	traps 257
	say "ok    the port counts it, and tells OpenSM, by trap 257"
	key_removed
}

# Under a connection: it ends as if the peer were gone.
key_removed() {
	HOST_A=(--host node1)
	start_pair removed 4 ib_send_bw -F -D 60 --pkey_index 1 -u 10
	more_traffic 1
	echo "Default=0x7fff, ipoib : ALL=full;" >"$TMP/partitions"
	kill -HUP "$(pgrep -x opensm -P "$(fabric_process)")"
	! finish removed.client || fail "it goes on without its P_Key" "$TMP/removed.server" "$TMP/removed.client"
	kill_hard removed.server
	broke removed "a connection whose P_Key is removed"
	say "ok    a P_Key that is removed under a connection ends it"
}

# Under a connection, with the same index at both ends: it goes on.
new_key() {
	local host
	start_pair new_key 4 ib_send_bw -F -D 60 -s 1024 -u 16
	more_traffic 16
	for host in node1 node2 node3; do
		at node1 "$HERE/write_pkey.py" "$(lid_of $host)" 0x8123 || fail "the P_Key of $host cannot be written" "$TMP/out"
	done
	more_traffic 64 || fail "the connection keeps its old P_Key" "$TMP/new_key.server" "$TMP/new_key.client"
	kill_hard new_key.client new_key.server
	say "ok    a connection goes on with the P_Key that is written in the place of its own"
}

# broke PAIR WHAT: its client was told that nobody answers.
broke() { says "$1.client" 'transport retry counter exceeded|Failed status 12' || fail "$2" "$TMP/$1.client"; }

# ---- groups ----
groups() {
	pair 4 ib_send_bw -F -n 100 -c UD -s 1024 --mcg
	pair 4 ib_send_lat -F -n 100 -c UD -s 1024 --mcg
}

# ---- a cable that carries short packets alone ----
mtu() {
	at node1 ibv_devinfo && says out 'active_mtu:.*4096' || fail "the host's own port" "$TMP/out"
	pair 4 ibv_rc_pingpong -c -m 256 -s 20000
	pair 4 ibv_uc_pingpong -c -m 256 -s 20000
	pair 4 ibv_ud_pingpong -c -s 256
	start_pair long 4 ib_send_bw -F -n 20 -m 4096 -s 20000 -u 10
	! finish long.client || fail "packets pass that are too long" "$TMP/long.server" "$TMP/long.client"
	kill_hard long.server
	broke long "packets that are too long"
	say "ok    packets that are too long for a cable on the way do not arrive"
	pair 4 ib_send_bw -F -n 20 -m 256 -s 20000
}

# ---- tables that lead nowhere, written by hand ----
# Who writes and asks is node2, which is not on the way; as soon as a link moves the manager sees to its tables again.
switch_lid() { at node2 ibswitches && sed -nE "s/.*\"$1\".* lid ([0-9]+) .*/\1/p" "$TMP/out"; }

route() { at node2 "$HERE/write_route.py" "$@" || fail "cannot write a table: $*" "$TMP/out"; }

# errors COUNTER PORT SWITCH...: of these ports together.
errors() {
	local switch sum=0
	for switch in "${@:3}"; do
		at node2 perfquery "$switch" "$2" || fail "perfquery" "$TMP/out"
		sum=$((sum + $(sed -n "s/^$1:\.*//p" "$TMP/out")))
	done
	echo "$sum"
}

managed_again() {
	the_fabric cut 'S1[1]' >"$TMP/out" 2>&1 && the_fabric mend 'S1[1]' >"$TMP/out" 2>&1 || fail "cut and mend" "$TMP/out"
	pair 4 ibv_rc_pingpong -c -n 50
}

# loaded_impatiently: what is sent goes from the last host to the first.
loaded_impatiently() {
	start_pair load 4 ib_send_bw -F -s 4096 -u 10 -D 1 --run_infinitely
	loaded 1
}

# lost WHAT: the load ends as if its peer were gone, and nobody else comes through.
lost() {
	! finish load.client || fail "$1: the load goes on" "$TMP/load.server" "$TMP/load.client"
	kill_hard load.server
	broke load "$1"
	start_pair late 4 ib_send_bw -F -n 20 -u 10
	! finish late.client || fail "$1: packets arrive" "$TMP/late.server" "$TMP/late.client"
	kill_hard late.server
	broke late "$1"
}

tables() {
	local lid switches
	lid=$(lid_of node1) switches=("$(switch_lid S1)" "$(switch_lid S2)" "$(switch_lid S3)")
	pair 4 ibv_rc_pingpong -c -n 50

	loaded_impatiently
	route "${switches[2]}" "$lid" 255
	lost "no entry"
	[ "$(errors PortRcvSwitchRelayErrors 3 "${switches[2]}")" -gt 0 ] || fail "nobody has counted what found no entry" "$TMP/out"
	say "ok    a table without the entry: nothing passes, and the port where it came in counts it"
	managed_again

	loaded_impatiently
	for switch in "${switches[@]}"; do
		route "$switch" "$lid" 1
	done
	lost "a circle"
	[ "$(errors PortXmitDiscards 1 "${switches[@]}")" -gt 0 ] || fail "nobody has counted what went round" "$TMP/out"
	say "ok    tables that lead round in a circle: packets end there, and are counted"
	managed_again

	HOST_A=(--host node3) HOST_B=(--host node1)
	loaded_impatiently
	route "${switches[2]}" top $(($(lid_of node3) - 1))
	lost "a table that ends too early"
	say "ok    a table that ends before the LID: nothing passes"
	managed_again
}

# ---- programs and the fabric, killed in the middle ----
deaths() {
	local i name
	serve witness rping -s -a 10.47.0.1
	start client B rping -c -a 10.47.0.1 -p "$PORT" -v
	until_true "$PATIENCE" says client rdma-ping- || fail "no ping" "$TMP/witness" "$TMP/client"
	registry >"$TMP/registry_before"
	for i in {1..15}; do
		NEXT_PORT=7300
		serve listen rping -s -a 10.47.0.1
		start connect B rping -c -a 10.47.0.1 -p 7300
		start join A mckey -m "239.1.2.$((i % 4))" -b 10.47.0.1
		start answer B saquery PR
		sleep "$(printf '0.%03d' $((i * 7)))"
		for name in listen connect join answer; do
			kill -9 "${PID[$name]}" 2>/dev/null || true # some are done
		done
		for name in listen connect join answer; do
			finish "$name" || true
		done
	done
	until_true "$PATIENCE" only_these || fail "something of the killed is left" "$TMP/out" "$TMP/tables"
	! gone "${PID[witness]}" && ! gone "${PID[client]}" || fail "others have ended" "$TMP/witness" "$TMP/client"
	kill_hard witness client
	NEXT_PORT=7300
	serve server rping -s -a 10.47.0.1 -v -C 5
	start client B rping -c -a 10.47.0.1 -p 7300 -v -C 5
	verdict "the port of those that were killed" 'rdma-ping-4:' 'rdma-ping-4:'
	nothing_left
	say "ok    kill -9 in joins, listens, connects and answers of the SA: nothing stays behind"

	start_pair load 4 ib_send_bw -F -s 65536 -u 18 -D 1 --run_infinitely
	goes_on "nothing is killed"
	kill -9 "$(fabric_process)"
	until_true "$PATIENCE" up_again || fail "it cannot be started again" "$TMP/out"
	goes_on "the fabric is killed and started again"
	kill_hard load.client load.server
}

up_again() { the_fabric up --quiet --name world "$FABRIC" >"$TMP/out" 2>&1; }

# only_these: the fabric knows two programs, and switches no group.
only_these() {
	the_fabric status >"$TMP/out" 2>&1 && says out 'Programs with queue pairs: 2\.' &&
		the_fabric tables >"$TMP/tables" 2>&1 && ! says tables ' 0xc0'
}

# ---- a program that lies to the fabric ----
hostile() {
	start_pair load 4 ib_send_bw -F -s 4096 -u 18 -D 1 --run_infinitely
	goes_on "nobody lies"
	timeout "$PATIENCE" "$HERE/hostile_program.py" "$RUN_DIR/net-${NAMESPACES[0]}/fabric-world" node2 "$(lid_of node2)" \
		node1 "$(lid_of node1)" >"$TMP/lies" 2>&1 || fail "the hostile program" "$TMP/lies"
	the_fabric counters >"$TMP/out" 2>&1 || fail "the fabric does not tell counters" "$TMP/out"
	! grep -Eq '[0-9]{12}' "$TMP/out" || fail "a program's nonsense is counted" "$TMP/out"
	the_fabric status >"$TMP/out" 2>&1 || fail "the fabric does not answer" "$TMP/out"
	says out "^Packets of programs that were refused: $(sed -E 's/ .*//' "$TMP/lies");" &&
		says out "cut off for what they said: $(sed -E 's/.* ([0-9]+) strangers/\1/' "$TMP/lies");" &&
		says out "listeners that were refused: $(sed -E 's/.* ([0-9]+) listeners.*/\1/' "$TMP/lies")\." ||
		fail "not all of it is refused" "$TMP/lies" "$TMP/out"
	all_active || fail "ports went down" "$TMP/out"
	goes_on "a program lies: $(cat "$TMP/lies"), all refused and counted"
	kill_hard load.client load.server
	pair 4 ibv_rc_pingpong -c -n 50
}

# ---- programs that stand still ----
# What is sent to them finds no room any more; what they were asked to acknowledge is asked for again.
stopped() {
	local each
	start_pair load 4 ib_send_bw -F -s 4096 -u 18 -D 1 --run_infinitely
	start_pair deaf 4 ib_send_bw -F -c UD -s 1024 -D 1 --run_infinitely
	start_pair still 4 ib_send_bw -F -s 65536 -u 20 -D 1 --run_infinitely
	goes_on "nobody stands still"
	for each in deaf.server still.server still.client; do
		kill -STOP "${PID[$each]}"
		goes_on "$each stands still"
		pair 4 ibv_rc_pingpong -c -n 50
		[ $each = deaf.server ] || kill -CONT "${PID[$each]}"
	done
	kill_hard load.client load.server deaf.client deaf.server
	more_traffic 4 && ! gone "${PID[still.client]}" && ! gone "${PID[still.server]}" && content still.client && content still.server ||
		fail "who stood still does not go on" "$TMP/still.server" "$TMP/still.client"
	kill_hard still.client still.server
	say "ok    who stood still goes on"
}

# ---- what ports have counted ----
# count_all NAME: of each port with a cable, by perfquery: LID, port, packets and words that left and came.
count_all() {
	at node1 bash -c '
		ibnetdiscover -p | awk "/ - / { print \$2, \$3 }" | while read -r lid port; do
			perfquery "$lid" "$port" | awk -F"[.:]+" -v at="$lid $port" "
				{ v[\$1] = \$2 }
				END { print at, v[\"PortXmitPkts\"], v[\"PortXmitData\"], v[\"PortRcvPkts\"], v[\"PortRcvData\"] }"
		done' && cp "$TMP/out" "$TMP/count.$1" || fail "perfquery of all ports" "$TMP/out"
}

# passed WAY PACKETS WORDS: what the ports on ibtracert's path must have counted, as LID, port, side, packets, words.
passed() {
	[ "$2" != 0 ] || return 0
	awk -v from="$(cat "$TMP/from.$1")" -v n="$2" -v w="$3" '
		match($0, /^\[[0-9]+\] ->/) {
			out = substr($0, 2, index($0, "]") - 2)
			split($0, half, /}[[]/)
			lid = $0
			sub(/.* lid /, "", lid)
			sub(/-.*/, "", lid)
			print from, out, "left", n, w
			print lid, half[2] + 0, "came", n, w
			from = lid
		}' "$TMP/way.$1"
}

# trace WAY FROM TO: before anything is counted, since it sends packets itself.
trace() {
	lid_of "$2" >"$TMP/from.$1"
	at node1 ibtracert "$(cat "$TMP/from.$1")" "$(lid_of "$3")" && mv "$TMP/out" "$TMP/way.$1" || fail "ibtracert from $2 to $3" "$TMP/out"
}

# count_begin: what counting itself adds is seen by counting twice.
count_begin() {
	trace there node8 node1
	trace back node1 node8
	count_all first
	count_all second
	cp "$TMP/count.second" "$TMP/count.before"
}

# more_counted: what each port has counted since it was looked at last.
more_counted() {
	count_all after
	paste -d' ' "$TMP/count.first" "$TMP/count.second" "$TMP/count.before" "$TMP/count.after" | awk '
		function more(i) { return $(18 + i) - $(12 + i) - $(6 + i) + $i }
		more(3) { print $1, $2, "left", more(3), more(4) }
		more(5) { print $1, $2, "came", more(5), more(6) }' | sort >"$TMP/counted"
	mv "$TMP/count.after" "$TMP/count.before"
}

# are_counted THERE WORDS BACK WORDS: packets from node8 to node1, and back; since ports were looked at last.
are_counted() {
	more_counted
	{
		passed there "$1" "$2"
		passed back "$3" "$4"
	} | sort >"$TMP/expected"
	cmp -s "$TMP/expected" "$TMP/counted"
}
counted_wrongly() { fail "$1: other packets than passed are counted" "$TMP/expected" "$TMP/counted" "$TMP/count.first"; }
counted_well() { say "ok    $1: of $2 packets and $3 back over three switches each port on the way counts all, and no other port any"; }

tx_packets() { sed -nE 's/.*adapter counters: tx_packets=([0-9]+).*/\1/p' "$TMP/$1"; }

# counts NAME PROGRAM: runs it, between two hosts.
counts() {
	export ANYRDMA_LOG=info
	start_pair "$1" 4 "${@:2}"
	unset ANYRDMA_LOG
	finish_pair "$1" "$2"
}

# by_memory NAME PROGRAM... -- THERE WORDS BACK WORDS: past the switches, which count it all the same. Each packet has LRH, BTH and
# ICRC; there are no acknowledges. What is sent again, as a timer ran out on a busy machine, is more than was asked for: such
# a run, and no other, tells nothing.
by_memory() {
	local all=("${@:1:$#-5}") numbers=("${@: -4}") tries=0
	until counts "${all[@]}" && are_counted "${numbers[@]}"; do
		sent_again "$1" && [ $((++tries)) -lt 20 ] || counted_wrongly "${all[*]:1} by memory"
	done
	says "$1.client" 'through shared memory' || fail "packets are through the switches" "$TMP/$1.client" "$TMP/$1.server"
	counted_well "${all[*]:1} by memory" "${numbers[0]}" "${numbers[2]}"
}
sent_again() { grep -Eq ' (retransmits|probes)=' "$TMP/$1.client" "$TMP/$1.server"; }

# Looks that are no perfquery, while nothing but the load moves.
arrived_by_table() { the_fabric counters 'node1[1]' | awk 'NR == 2 { print $4 }'; }
arrived_by_file() { at node1 cat /sys/class/infiniband/ib0/ports/1/counters/port_rcv_packets && cat "$TMP/out"; }
has_grown() { [ "$("$1")" -gt "$2" ]; }
looked_at() {
	local look
	start_pair load 4 ib_send_bw -F -s 4096 -m 4096 -D 1 --run_infinitely
	more_traffic 4
	for look in arrived_by_table arrived_by_file; do
		until_true "$PATIENCE" has_grown $look $(($($look) + 1000)) || fail "$look does not follow"
		say "ok    $look follows"
	done
	kill_hard load.client load.server
}

# Nobody has looked while they lived.
killed() {
	local n
	count_begin
	start_pair dies 4 ib_send_bw -F -s 4096 -m 4096 -D 1 --run_infinitely
	more_traffic 4
	kill_hard dies.client dies.server
	more_counted
	n=$(awk '$3 == "left" { print $4; exit }' "$TMP/counted")
	[ "${n:-0}" -gt 1000 ] || fail "what killed programs have sent is not counted" "$TMP/counted"
	passed there "$n" $((n * 1030)) | sort >"$TMP/expected"
	cmp -s "$TMP/expected" "$TMP/counted" || counted_wrongly "what killed programs have sent"
	say "ok    what killed programs have sent is counted"
}

# LRH, BTH, ICRC, and 4096 bytes or an AETH.
counters() {
	local sent acks
	count_begin
	if [ "$WORLD" = fabric ]; then
		by_memory sends ib_send_bw -F -n 1000 -s 4096 -m 4096 -r 1000 -- 1000 1030000 0 0
		by_memory writes ib_write_bw -F -n 100 -s 10001 -m 4096 -- 300 $((100 * 2523)) 0 0
		by_memory reads ib_read_bw -F -n 100 -s 10001 -m 4096 -- 100 1000 300 $((100 * 2521))
		by_memory large_writes ib_write_bw -F -n 10 -s 100001 -m 1024 -- 980 255930 0 0
		by_memory large_reads ib_read_bw -F -n 10 -s 100001 -m 1024 -- 20 200 980 255930
		by_memory atomics ib_atomic_bw -F -n 100 -- 100 1300 100 900
		by_memory unreliable ib_write_bw -F -c UC -n 100 -s 10001 -m 4096 -- 300 $((100 * 2523)) 0 0
		by_memory small ib_send_bw -F -n 100 -s 61 -m 4096 -- 100 2200 0 0
		looked_at
		killed
		return
	fi
	counts sends ib_send_bw -F -n 1000 -s 4096 -m 4096 -r 1000
	sent=$(tx_packets sends.client) acks=$(tx_packets sends.server)
	[ "$sent" -ge 1000 ] && [ "$acks" -gt 0 ] || fail "packets are not through the switches" "$TMP/sends.client" "$TMP/sends.server"
	are_counted "$sent" $((sent * 1030)) "$acks" $((acks * 7)) || counted_wrongly "SENDs and acknowledges"
	counted_well "SENDs and acknowledges" "$sent" "$acks"
}

# ---- what is seen on cables ----
captured() {
	local word
	command -v tshark >/dev/null || skip "needs tshark"
	the_fabric capture "$TMP/all.pcapng" >"$TMP/out" 2>&1 || fail "fabric capture" "$TMP/out"
	pair 4 ibv_rc_pingpong -c -s 10001 -n 10
	pair 6 ibv_rc_pingpong -c -m 256 -s 1003 -n 10
	pair 4 ibv_uc_pingpong -c -s 10001 -n 10
	pair 6 ibv_ud_pingpong -c -s 1001 -n 10
	pair 4 ib_write_bw -F -n 10 -s 10001
	pair 4 ib_read_bw -F -n 10 -s 10001
	pair 4 ib_atomic_bw -F -n 10
	pair 4 ib_send_bw -F -n 10 -c UD -s 1024 --mcg
	serve server rping -s -a 10.47.0.1 -v -C 3
	start client B rping -c -a 10.47.0.1 -p "$PORT" -v -C 3
	verdict "rping" 'rdma-ping-2:' 'rdma-ping-2:'
	the_fabric capture stop >"$TMP/out" 2>&1 || fail "fabric capture stop" "$TMP/out"
	"$HERE/../wire/icrc_check.py" "$TMP/all.pcapng" >"$TMP/out" 2>&1 || fail "CRCs of the capture" "$TMP/out"
	say "ok    every packet has a right ICRC and VCRC on every cable: $(tail -n 1 "$TMP/out")"
	tshark -n --disable-protocol rpcordma -r "$TMP/all.pcapng" -V >"$TMP/dissected" 2>/dev/null
	! grep -Ei 'malformed|exception' "$TMP/dissected" >"$TMP/out" || fail "tshark complains" "$TMP/out"
	tshark -n --disable-protocol rpcordma -r "$TMP/all.pcapng" >"$TMP/dissected" 2>/dev/null
	for word in 'RC RDMA Write First' 'RC RDMA Read Request' 'RC Acknowledge' 'UC Send First' 'UD Send Only' 'RC Fetch Add' \
		'CM: ConnectRequest' 'CM: ReadyToUse' 'SubnAdmGet(PathRecord)' 'SubnAdmSet(MCMemberRecord)'; do
		grep -Fq "$word" "$TMP/dissected" || fail "tshark sees no $word" "$TMP/dissected"
	done
	say "ok    and tshark knows what it is, and finds nothing malformed"
}

# ---- OpenSM, while programs run ----
# The load outlives all that is done to the subnet's managers: a hundred connections that never get a sign of it. The second OpenSM
# polls the first each second, and gives up after two polls.
managers() {
	local lids
	cat >"$TMP/standby" <<-END
		sminfo_polling_timeout 1000
		polling_retry_number 2
	END
	sm node2 -p 10
	until_true "$PATIENCE" all_active || fail "OpenSM does not bring the ports up" "$TMP/sm_node2" "$TMP/osm_node2/log"
	sm node3 -p 5
	until_true "$PATIENCE" stands_by node3 || fail "no standby" "$TMP/out" "$TMP/osm_node3/log"
	lids=$(all_lids)
	watched
	start_pair load 4 ib_send_bw -F -q 100 -s 4096 -u 18 -D 1 --run_infinitely
	goes_on "under load"

	uplinks
	until_true "$PATIENCE" grep -q num:128 "$TMP/osm_node2/log" || fail "no trap 128" "$TMP/osm_node2/log"
	kill_hard sm_node2
	until_true "$PATIENCE" manages node3 || fail "the standby does not take over" "$TMP/out" "$TMP/osm_node3/log"
	until_true "$PATIENCE" says watch CLIENT_REREGISTER || fail "ports are not told to register again" "$TMP/watch"
	until_true "$PATIENCE" joined || fail "groups are not joined again" "$TMP/out" "$TMP/member" "$TMP/witness"
	goes_on "the master is killed, the other OpenSM takes over, groups are joined again"

	kill_hard sm_node3
	goes_on "nobody manages the subnet"
	sm node2 -p 10
	until_true "$PATIENCE" manages node2 || fail "OpenSM does not come back" "$TMP/out" "$TMP/osm_node2/log"
	until_true "$PATIENCE" all_active || fail "ports are down" "$TMP/osm_node2/log"
	[ "$(all_lids)" = "$lids" ] || fail "LIDs have changed"
	goes_on "OpenSM is started again, every LID stays"

	stands_still "${PID[sm_node2]}" "OpenSM"
	stands_still "$(fabric_process)" "the fabric"

	sm node3 -p 14
	until_true "$PATIENCE" manages node3 || fail "no handover" "$TMP/out" "$TMP/osm_node2/log" "$TMP/osm_node3/log"
	until_true "$PATIENCE" stands_by node2 || fail "who handed over does not wait" "$TMP/out" "$TMP/osm_node2/log"
	until_true "$PATIENCE" joined || fail "groups are not joined again" "$TMP/out" "$TMP/member" "$TMP/witness"
	goes_on "OpenSM hands over to one of higher priority, groups are joined again"
	kill_hard load.client load.server
}

all_active() { the_fabric status | grep -Eq '^Ports with a cable: [0-9]+ ACTIVE\.$'; }
all_lids() { the_fabric hosts | awk 'NR > 1 { print $1, $5 }'; }
manages() { at node4 sminfo && says out "sm lid $(lid_of "$1") .*SMINFO_MASTER"; }
stands_by() { at node4 sminfo "$(lid_of "$1")" && says out SMINFO_STANDBY; }

# sm HOST ARGS...: one more OpenSM.
sm() {
	local dir=$TMP/osm_$1
	mkdir -p "$dir"
	HOST_A=(--host "$1")
	start "sm_$1" A env OSM_TMP_DIR="$dir" OSM_CACHE_DIR="$dir" opensm -e -f "$dir/log" -F "$TMP/standby" "${@:2}"
	HOST_A=(--host node1)
}

# watched: what the first host hears; a group that it and the last one are in.
watched() {
	local name
	start watch A stdbuf -oL ibv_asyncwatch -d ib0
	start member A stdbuf -oL mckey -m 239.1.1.9 -b 10.47.0.1
	start witness B stdbuf -oL mckey -m 239.1.1.9 -b 10.47.0.16
	until_true "$PATIENCE" says watch 'async event FD' || fail "ibv_asyncwatch" "$TMP/watch"
	for name in member witness; do
		until_true "$PATIENCE" says $name 'joined dgid' || fail "mckey does not join" "$TMP/$name"
	done
}

# joined: the SA, which tells it who has its key, knows both hosts as members of one group.
joined() {
	at node4 saquery --smkey 1 -m && [ "$(awk '/MGID/ { group = $1 } /NodeDescription\.+node(1|16)$/ { print group }' "$TMP/out" |
		grep -c ff12:4001:ffff || true)" = 2 ]
}

# goes_on LABEL: the load, no wrong word of it.
goes_on() {
	loaded 4
	! gone "${PID[load.client]}" && ! gone "${PID[load.server]}" && content load.client && content load.server ||
		fail "$1: the load has ended" "$TMP/load.server" "$TMP/load.client"
	say "ok    $1: the load goes on"
}

# uplinks: the first host's, one and then the other, which OpenSM finds a way around.
uplinks() {
	local agg
	for agg in 1 2; do
		the_fabric cut "edge1[$agg]" >"$TMP/out" 2>&1 || fail "cut" "$TMP/out"
		goes_on "uplink $agg is cut"
		the_fabric mend "edge1[$agg]" >"$TMP/out" 2>&1 || fail "mend" "$TMP/out"
		until_true "$PATIENCE" all_active || fail "uplink $agg does not come back"
		goes_on "uplink $agg is mended"
	done
}

# stands_still PID WHO: for a second.
stands_still() {
	kill -STOP "$1"
	sleep 1
	kill -CONT "$1"
	goes_on "$2 stands still for a second"
}

# ---- cables that lose, damage, double and delay; hosts and switches without ----
damage() {
	local fault
	for fault in loss=2% corrupt=2% duplicate=20% delay=1ms "loss=1% corrupt=1% duplicate=5% delay=50us"; do
		# shellcheck disable=SC2086 # several words
		the_fabric inject 'node1[1]' $fault >"$TMP/out" 2>&1 || fail "inject" "$TMP/out"
		start_pair damaged 4 ibv_rc_pingpong -c -s 20000 -n 200
		finish_pair damaged "$fault: ibv_rc_pingpong -c"
	done
	the_fabric inject 'node1[1]' none >"$TMP/out" 2>&1 || fail "inject" "$TMP/out"

	start_pair load 4 ib_send_bw -F -s 65536 -u 18 -D 1 --run_infinitely
	goes_on "nothing is cut"
	unplugged "the host is unplugged, and plugged in again" 'node1[1]'
	unplugged "its switch loses its power, and gets it back" 'edge1[1]' 'edge1[2]' 'edge1[3]' 'edge1[4]'
	flaps
	kill_hard load.client load.server
}

# unplugged LABEL PORT...: for less time than the load would wait.
unplugged() {
	the_fabric cut "${@:2}" >"$TMP/out" 2>&1 || fail "cut" "$TMP/out"
	sleep 0.3
	the_fabric mend "${@:2}" >"$TMP/out" 2>&1 || fail "mend" "$TMP/out"
	goes_on "$1"
}

# flaps: a thousand times, the cables that the load needs.
flaps() {
	flap world edge1 1 >"$TMP/out" 2>&1 || fail "flaps" "$TMP/out"
	goes_on "a thousand flaps of its cables"
}

case $part in
cables | lids | keys | new_key | groups | mtu | tables | deaths | hostile | stopped | counters | captured | managers | damage) "$part" ;;
*) fail "no such part: $part" ;;
esac
done_testing
