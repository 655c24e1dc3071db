#!/bin/sh
# SPDX-License-Identifier: MIT
#
# dissect.sh CAPTURE...: a stranger's eye on our packets. Fails when tshark finds a malformed frame, when the capture
# holds a frame cut short, a datagram to UDP port 4791 in which tshark does not see InfiniBand transport, or no RoCE
# packet at all.
#
# What the payload of a SEND is, tshark can only guess. Its RPC-over-RDMA dissector takes perftest's and
# rping's data for its own and calls them malformed, so it is switched off: payload is the application's affair.
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
		-e udp.dstport -e infiniband.bth.opcode -e _ws.malformed -e _ws.col.Info
}

judge='
function bad(why) { printf "%s: frame %s: %s: %s\n", capture, $1, why, $9; failed = 1 }
$8 != ""                            { bad("malformed") }
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
