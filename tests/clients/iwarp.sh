#!/bin/bash
# SPDX-License-Identifier: MIT
# iwarp.sh WORLD: programs that connect by address, over iWARP: those of rdmacm-utils, perftest with -R, rsockets.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/cm.sh
. "$HERE/cm.sh"
enter "$1" "$@"
needs_ipv6
export ANYRDMA_DEVICES=iwarp

# both_kinds: a server that is bound to no address is reached by RoCE and by iWARP.
both_kinds() {
	local kind
	ANYRDMA_DEVICES='' serve server rping -s -P -a 0.0.0.0
	for kind in roce iwarp; do
		ANYRDMA_DEVICES=$kind start client B rping -c -a "$IP4_A" -p "$PORT" -v -C 3
		finish client && says client rdma-ping-2 || fail "rping by $kind" "$TMP/server" "$TMP/client"
	done
	kill_hard server
	say "ok    one server, by RoCE and by iWARP"
}

# refused: nobody has the port; by TCP's word and not after a wait.
refused() {
	start client B ucmatose -s "$IP4_A" -p "$NEXT_PORT"
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: -111' || fail "connect to a port nobody has" "$TMP/client"
	say "ok    a port nobody listens to: REJECTED, -111"
}

# by_hand: without rdma_cm there is no connection. perftest says that it failed, we say why.
by_hand() {
	local name
	start server A ib_write_bw -d "$(device A)" -p "$NEXT_PORT"
	until_true "$PATIENCE" listens "${PID[server]}" "$NEXT_PORT" || true
	start client B ib_write_bw -d "$(device B)" -p "$NEXT_PORT" "$IP4_A"
	for name in client server; do
		! finish "$name" && says "$name" 'connected by address, through rdma_cm' ||
			fail "perftest without -R" "$TMP/server" "$TMP/client"
	done
	NEXT_PORT=$((NEXT_PORT + 1))
	say "ok    perftest without -R is told why it fails"
}

# record: everything by TCP, on side B, as a wire would carry it.
record() {
	local side
	for side in "A va" "B vb"; do
		# shellcheck disable=SC2086 # a side and a device
		on ${side% *} ethtool -K ${side#* } tso off gso off gro off >/dev/null 2>&1 || true
	done
	: >"$TMP/capture.pcap"
	(exec "${ON_B[@]}" dumpcap -q -P -i vb -s 10000 -B 64 -w "$TMP/capture.pcap" -f tcp >"$TMP/dumpcap" 2>&1) &
	PID[dumpcap]=$!
	until_true 10 test -s "$TMP/capture.pcap" || fail "dumpcap does not start" "$TMP/dumpcap"
}

# has_ended: the client's last connection is in the file, to its end.
has_ended() { [ "$(HOME=$TMP tshark -n -r "$TMP/capture.pcap" -Y "tcp.port == $PORT && tcp.flags.fin" 2>/dev/null | wc -l)" -ge 2 ]; }

# judged: tshark dissects every FPDU and finds every CRC right.
judged() {
	local good operation
	export ANYRDMA_IWARP=crc
	record
	ping 4 -S 3000
	ping 6
	measure ib_write_bw -s 5001
	measure ib_send_lat -s 100
	measure ib_read_lat -s 4000
	unset ANYRDMA_IWARP
	until_true 10 has_ended || fail "no end in the capture" "$TMP/dumpcap"
	kill -TERM "${PID[dumpcap]}"
	finish dumpcap 10 || fail "dumpcap fails" "$TMP/dumpcap"
	# A port that the kernel drew may be another protocol's, of which tshark would make the connection.
	HOME=$TMP tshark -n -o tcp.try_heuristic_first:TRUE -r "$TMP/capture.pcap" --disable-protocol rpcordma -V >"$TMP/dissect" 2>/dev/null || true
	good=$(grep -c 'Good CRC32' "$TMP/dissect" || true)
	grep -E 'Bad CRC32|Malformed|Bad length' "$TMP/dissect" >"$TMP/complaints" && fail "tshark complains" "$TMP/complaints"
	for operation in Write 'Read Request' 'Read Response' Send; do
		grep -q "OpCode: $operation (" "$TMP/dissect" || fail "tshark sees no $operation" "$TMP/dissect"
	done
	[ "$good" -ge 300 ] || fail "only $good right CRCs" "$TMP/dissect"
	say "ok    tshark finds $good right CRCs and none that is wrong"
}

# siw_set NAME VALUE...: what siw goes by from now on (make_guest, siw_settings).
siw_set() {
	for (( ; $#; )); do
		on "$GUEST" sh -c "echo $2 >/sys/module/siw/parameters/$1" || fail "siw takes no $1"
		shift 2
	done
}

# siw_otherwise: a siw that wants peer-to-peer mode, the CRC, both or no CRC, and one of revision 1.
siw_otherwise() {
	siw_set peer_to_peer 1
	ping 4 -S 20000
	siw_set mpa_crc_required 1
	ping 4 -S 20000
	ANYRDMA_IWARP=client-server ping 4
	siw_set peer_to_peer 0 mpa_crc_strict 1
	ping 4
	siw_set mpa_crc_required 0
	ping 4
	ANYRDMA_IWARP=crc crc_refused
	siw_set mpa_crc_strict 0 mpa_version 1
	ping 4
	siw_set mpa_version 2
}

# crc_refused: we want the CRC, siw does not.
crc_refused() {
	serve server rping -s -P -a "$IP4_A"
	start client B ucmatose -s "$IP4_A" -p "$PORT"
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: -111' || fail "a CRC that siw does not take" "$TMP/server" "$TMP/client"
	kill_hard server
	say "ok    a CRC that siw does not take: REJECTED, -111"
}

# with_siw: what Linux's siw has. It takes markers from nobody, and knows no atomics and no immediate data.
with_siw() {
	local family how
	for family in 4 6; do
		ping "$family"
		ping "$family" -S 60000
	done
	client_killed
	for how in crc client-server rtr-write rtr-read plain mss crc,mss; do
		ANYRDMA_IWARP=$how ping 4 -S 20000
	done
	connected 4 -c 3
	connected 6 -C 20 -S 5000
	synchronous
	for how in '' crc; do
		export ANYRDMA_IWARP=$how
		for program in ib_{send,write,read}_{bw,lat}; do
			measure "$program" -s 5001
		done
		measure ib_write_bw -s 1000003
	done
	unset ANYRDMA_IWARP
	stream 4 rstream -T v -S 5000 -C 20
	siw_otherwise
	done_testing
	exit 0
}

# took WAY: what the client said of its queue pairs: by TCP; through shared memory; or that, and by its own hands (direct).
took() {
	case $1 in
	tcp) says client 'connected by TCP' && ! says client 'through shared memory$' ;;
	memory) says client 'to QP 0x[0-9a-f]+ through shared memory' && ! says client 'connected by TCP' ;;
	direct) took memory && says client ' direct=' ;;
	esac || fail "not by $1" "$TMP/server" "$TMP/client"
}

# one_differs LABEL WAY SETTING: one end has this in its environment, then the other.
one_differs() {
	ON_A=(env "$3")
	ping 4 -S 20000 && took "$2"
	ON_A=() ON_B=(env ANYRDMA_LOG=info "$3")
	ping 4 -S 20000 && took "$2"
	ON_B=(env ANYRDMA_LOG=info)
	say "ok    $1 at one end: by $2"
}

# one_is_killed PROGRAM: in mid transfer; the other hears of it by TCP.
one_is_killed() {
	local victim survivor
	for victim in server client; do
		survivor=client
		[ "$victim" = server ] || survivor=server
		serve server "$1" -R -F -b -D 120
		start client B "$1" -R -F -b -D 120 -p "$PORT" "$IP4_A"
		more_traffic 16 || fail "no traffic to interrupt" "$TMP/server" "$TMP/client"
		kill_hard "$victim"
		! finish "$survivor" 20 || fail "$1: the $survivor does not notice" "$TMP/$survivor"
	done
	say "ok    $1: either end is killed"
}

# on_one_host: through shared memory, as the client says at log level info; by TCP where one end cannot, or will not.
on_one_host() {
	local program
	ON_B=(env ANYRDMA_LOG=info)
	ping 4 -S 60000 && took memory
	ping 6 && took memory
	for program in ib_{send,write,read,atomic}_lat ib_send_bw; do
		measure "$program" && took memory
	done
	for program in ib_{write,read}_bw; do
		measure "$program" -n 5000 && took direct
	done
	connected 4 -c 10 -C 20 -S 5000 && took memory
	stream 4 rstream -T v -S 100000 -C 20 && took memory
	one_differs "ANYRDMA_LOCAL=off" tcp ANYRDMA_LOCAL=off
	one_differs "ANYRDMA_IWARP=plain" tcp ANYRDMA_IWARP=plain
	one_differs "ANYRDMA_LOCAL=ring" memory ANYRDMA_LOCAL=ring
	ON_B=()
	client_killed
	one_is_killed ib_write_bw
	one_is_killed ib_send_bw
	eight_clients
	synchronous
	connects 100
	nothing_left
	# Last: from here on programs are another user's.
	serve server rping -s -a "$IP4_A" -V -C 10
	as_ordinary_user
	IDENTITY+=(ANYRDMA_LOG=info ANYRDMA_DEVICES=iwarp)
	start client B rping -c -a "$IP4_A" -p "$PORT" -v -V -C 10
	verdict "a client of another user" 'rdma-ping-9:' ''
	took tcp
	done_testing
	exit 0
}

[ -z "$GUEST" ] || with_siw
# The tree of devices is made by the first program.
run A ibv_devices >/dev/null
run B ibv_devices >/dev/null
registry >"$TMP/registry_before"
[ "$WORLD" != loopback ] || on_one_host
judged
refused
taken_port
client_killed
for family in 4 6; do
	ping "$family"
	ping "$family" -S 60000
done
any_address 4 0.0.0.0
any_address 6 ::0
any_address 4 ::0
both_kinds
for how in crc markers crc,markers mpa1 client-server rtr-write rtr-read rtr-zero plain mss; do
	ANYRDMA_IWARP=$how ping 4 -S 20000
done
eight_clients
connected 4
connected 4 -c 10 -C 20 -S 5000 -t 32
connected 6 -m -c 5
synchronous
connects 200
for program in ib_{send,write,read,atomic}_{bw,lat}; do
	measure "$program"
done
for program in ib_{send,write,read}_bw; do
	measure "$program" -s 1000003 -b
	ANYRDMA_IWARP=crc measure "$program" -s 100003
done
stream 4 rstream -T v -S 64 -C 1000
stream 4 rstream -T v -S 1000000 -C 20
# One queue pair: over iWARP perftest counts credits by the receive and not by the queue pair that took it, so with a shared
# queue and several of them one that is ahead makes the others' credits more than they have sent, and they wait for ever.
measure ib_send_bw --use-srq
measure ib_send_lat -e
measure ib_write_bw -q 4 -I 64 -s 64
by_hand
nothing_left
done_testing
