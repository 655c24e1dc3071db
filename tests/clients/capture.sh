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

no_offloads() {
	local flag
	for flag in tx-udp-segmentation gso gro; do
		on A ethtool -K va $flag off >/dev/null 2>&1 || true
		on B ethtool -K vb $flag off >/dev/null 2>&1 || true
	done
}

# record: starts dumpcap on side B. The buffer is large and the snap length near the packets', or bursts are
# lost. (dumpcap and not tcpdump, which cannot change its user inside a user namespace.)
record() {
	: >"$TMP/capture.pcap"
	(exec "${ON_B[@]}" dumpcap -q -P -i vb -s 10000 -B 64 -w "$TMP/capture.pcap" \
		-f "udp port 4791 or udp port $MARKER_PORT" >"$TMP/dumpcap" 2>&1) &
	PID[dumpcap]=$!
	until_true 10 capturing || fail "dumpcap does not start" "$TMP/dumpcap"
}

# capturing: the file has its header, which dumpcap writes when the interface is open.
capturing() { [ -s "$TMP/capture.pcap" ]; }

marker_seen() { grep -qs anyrdma-end-of-traffic "$TMP/capture.pcap"; }

# stop_recording: the marker is the last packet; when it is in the file, all others are.
stop_recording() {
	bash -c "echo anyrdma-end-of-traffic >/dev/udp/$IP4_B/$MARKER_PORT"
	until_true 10 marker_seen || fail "dumpcap does not see the end" "$TMP/dumpcap"
	kill -TERM "${PID[dumpcap]}"
	finish dumpcap 10 || fail "dumpcap fails" "$TMP/dumpcap"
	says dumpcap "'vb': [0-9]+/0 \(pcap:0/dumpcap:0/" || fail "dumpcap lost packets" "$TMP/dumpcap"
}

# judged LABEL COMMAND...: records while the command runs its pairs, and lets the strangers judge.
judged() {
	local label=$1
	shift
	record
	"$@"
	stop_recording
	# The user's own settings have no say in how packets are dissected.
	HOME=$TMP "$WIRE/dissect.sh" "$TMP/capture.pcap" >"$TMP/dissect" 2>&1 || fail "$label: tshark complains" "$TMP/dissect"
	"$WIRE/icrc_check.py" "$TMP/capture.pcap" >"$TMP/icrc" 2>&1 || fail "$label: an ICRC is wrong" "$TMP/icrc"
	say "ok    $label: every packet dissects, every ICRC agrees ($(tail -n 1 "$TMP/icrc"))"
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
