#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dissect.sh CAPTURE...: a stranger's eye on our packets. Fails when tshark finds a malformed frame, when the capture
# holds a frame cut short, a datagram to UDP port 4791 in which tshark does not see InfiniBand transport, or no RoCE
# packet at all.
#
# What the payload of a SEND is, tshark can only guess, and what it took for RPC over RDMA, or two random bytes for an
# Ethernet type, it then calls malformed. Payload is the application's affair: only what ends in InfiniBand is judged.
set -eu

if [ $# -eq 0 ]; then
	echo "usage: $0 CAPTURE..." >&2
	exit 2
fi

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# fields CAPTURE: a line for each frame, tab separated; an ICMP error quotes a packet but is none
fields()
{
	tshark -n -r "$1" --disable-protocol rpcordma -T fields -E occurrence=f \
		-e frame.number -e frame.len -e frame.cap_len -e icmp.type -e icmpv6.type \
		-e udp.dstport -e infiniband.bth.opcode -e _ws.malformed -e frame.protocols -e _ws.col.Info
}

judge='
function bad(why) { printf "%s: frame %s: %s: %s\n", capture, $1, why, $10; failed = 1 }
function guessed(p) { gsub(/:(_ws.malformed|data)/, "", p); return p ~ /:infiniband:/ }
$8 != "" && !guessed($9)            { bad("malformed") }
$3 < $2                             { bad("cut short while capturing") }
$6 != 4791 || $4 != "" || $5 != ""  { next }
$7 == ""                            { bad("to UDP port 4791, but not InfiniBand to tshark"); next }
                                    { roce++ }
END {
	printf "%s: %d RoCE packets dissected\n", capture, roce
	exit failed || !roce
}'

status=0
for capture in "$@"; do
	if ! frames=$(fields "$capture" 2>"$errors"); then
		cat "$errors" >&2
		exit 2
	fi
	printf '%s\n' "$frames" | awk -F '\t' -v capture="$capture" "$judge" || status=1
done
exit $status
