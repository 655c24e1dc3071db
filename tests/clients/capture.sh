#!/bin/bash
# SPDX-License-Identifier: MIT
# capture.sh WORLD: what goes over the wire, judged by strangers: tshark must find nothing malformed, and an ICRC
# checker that shares no code with the product must agree on every packet.
#
# Segmentation offloads are off, so that the capture shows packets as a wire would carry them.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"

WIRE=$HERE/../wire
MARKER_PORT=9 # discard: a datagram that says "the traffic ends here"

# The side whose interface is watched: B, or the one that is no guest.
WATCHED=B
[ "$GUEST" != B ] || WATCHED=A
WATCHED_DEV=$(netdev $WATCHED)

no_offloads() {
	local flag side
	for side in A B; do
		[ "$side" != "$GUEST" ] || continue
		for flag in tx-udp-segmentation gso gro; do
			on $side ethtool -K "$(netdev $side)" $flag off >/dev/null 2>&1 || true
		done
	done
}

# record: starts dumpcap on the watched side. The buffer is large and the snap length near the packets', or bursts are
# lost. (dumpcap and not tcpdump, which cannot change its user inside a user namespace.)
record() {
	: >"$TMP/capture.pcap"
	# shellcheck disable=SC2093 # only the subshell is replaced
	(local -n prefix=ON_$WATCHED && exec "${prefix[@]}" dumpcap -q -P -i "$WATCHED_DEV" -s 10000 -B 64 -w "$TMP/capture.pcap" \
		-f "udp port 4791 or udp port $MARKER_PORT" >"$TMP/dumpcap" 2>&1) &
	PID[dumpcap]=$!
	until_true 10 capturing || fail "dumpcap does not start" "$TMP/dumpcap"
}

# capturing: the file has its header, which dumpcap writes when the interface is open.
capturing() { [ -s "$TMP/capture.pcap" ]; }

marker_seen() { grep -qs anyrdma-end-of-traffic "$TMP/capture.pcap"; }

# stop_recording: the marker is the last packet; when it is in the file, all others are.
stop_recording() {
	local to=$IP4_B
	[ "$GUEST" != A ] || to=$IP4_A
	bash -c "echo anyrdma-end-of-traffic >/dev/udp/$to/$MARKER_PORT"
	until_true 10 marker_seen || fail "dumpcap does not see the end" "$TMP/dumpcap"
	kill -TERM "${PID[dumpcap]}"
	finish dumpcap 10 || fail "dumpcap fails" "$TMP/dumpcap"
	says dumpcap "'$WATCHED_DEV': [0-9]+/0 \(pcap:0/dumpcap:0/" || fail "dumpcap lost packets" "$TMP/dumpcap"
}

# judged LABEL COMMAND...: records while the command runs its pairs, and lets the strangers judge.
judged() {
	local label=$1 first=$NEXT_PORT
	shift
	record
	[ -z "$GUEST" ] || note_counters
	"$@"
	stop_recording
	# The user's own settings have no say in how packets are dissected.
	HOME=$TMP "$WIRE/dissect.sh" "$TMP/capture.pcap" >"$TMP/dissect" 2>&1 || fail "$label: tshark complains" "$TMP/dissect"
	"$WIRE/icrc_check.py" "$TMP/capture.pcap" >"$TMP/icrc" 2>&1 || fail "$label: an ICRC is wrong" "$TMP/icrc"
	[ -z "$GUEST" ] || as_many_counted "$label" $((NEXT_PORT - first))
	say "ok    $label: every packet dissects, every ICRC agrees ($(tail -n 1 "$TMP/icrc"))"
}

# packets FILTER: how many of the capture.
packets() { tshark -n -r "$TMP/capture.pcap" -Y "udp.dstport == 4791 && !icmp && !icmpv6 && ($1)" 2>/dev/null | wc -l; }

# as_many_counted LABEL PAIRS: rxe counts a packet when its ICRC is right, and else says nothing. Nor does it count what
# comes when the QP is gone, as the last acknowledges of a pair may.
as_many_counted() {
	local -n ip4=IP4_$GUEST ip6=IP6_$GUEST
	local to from took
	to=$(packets "ip.dst == $ip4 || ipv6.dst == $ip6") from=$(packets "ip.src == $ip4 || ipv6.src == $ip6")
	took=$(counted rcvd_pkts)
	[ "$took" -le "$to" ] && [ $((to - took)) -le $((2 * $2)) ] || fail "$1: rxe took $took packets of $to"
	[ "$(counted sent_pkts)" -eq "$from" ] || fail "$1: rxe sent $(counted sent_pkts) packets, $from came"
	say "ok    $1: rxe took $took packets of $to"
}

pingpongs() {
	local family
	for family in 4 6; do
		pair $family ibv_rc_pingpong -c -s 10001 -n 10
		pair $family ibv_uc_pingpong -c -s 10001 -n 10
		pair $family ibv_srq_pingpong -c -s 3 -n 10
		pair $family ibv_ud_pingpong -c -s 1022 -n 10
		pair $family ibv_rc_pingpong -c -m 256 -s 100003 -n 5
	done
}

# measurements PROGRAM...: few and small, so that the capture stays readable.
measurements() {
	local family program
	for family in 4 6; do
		for program; do
			pair $family "$program" -F -n 5
		done
	done
}

sizes() {
	local size
	for size in 1 2 3 1025 262147; do
		pair 4 ib_send_lat -F -n 5 -s $size
		pair 6 ib_read_lat -F -n 5 -s $size
	done
	for size in 3 262147; do
		pair 4 ib_write_bw -F -n 5 -s $size -b -q 2
	done
}

datagrams() {
	pair 4 ib_send_lat -F -n 20 -c UD
	pair 6 ib_send_lat -F -n 20 -c UD -e
	pair 4 ib_write_lat -F -n 20 -c UC
}

learn_gids
no_offloads
judged pingpong pingpongs
judged sizes sizes
if [ "$WORLD" = veth-1500 ]; then # what these send is the same with larger packets
	judged send measurements ib_send_bw ib_send_lat
	judged write measurements ib_write_bw ib_write_lat
	judged read measurements ib_read_bw ib_read_lat
	judged atomic measurements ib_atomic_bw ib_atomic_lat
	judged unreliable datagrams
fi
done_testing
