#!/bin/bash
# SPDX-License-Identifier: MIT
# rdmacm.sh WORLD: programs that connect by address: those of rdmacm-utils, and perftest with -R.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/cm.sh
. "$HERE/cm.sh"
enter "$1" "$@"
needs_ipv6
learn_gids
registry >"$TMP/registry_before"

# second_wire: another interface on each side, and another address on the first one.
second_wire() {
	ip link add va2 type veth peer name vb2 netns "${PID[namespace_b]}"
	ip addr add 10.77.1.1/24 dev va
	bring_up va2 10.78.0.1 fd78::1
	"${ON_B[@]}" bash -c "$(declare -f bring_up); ip addr add 10.77.1.2/24 dev vb; bring_up vb2 10.78.0.2 fd78::2"
	local dev
	for dev in "A va" "A va2" "B vb" "B vb2"; do
		# shellcheck disable=SC2086 # a side and a device
		until_true 10 has_link_local $dev || fail "no link-local address on $dev"
	done
}

# link_local SIDE DEVICE: that is in use, not still being looked for elsewhere.
link_local() {
	on "$1" ip -6 -o addr show dev "$2" scope link -tentative | awk '{ sub("/.*", "", $4); print $4 }'
}
has_link_local() { [ -n "$(link_local "$@")" ]; }

# several_devices: a server that is bound to a port only is reached by every address of the host; one that is bound to
# an address by that one alone.
several_devices() {
	local to
	second_wire
	serve server rping -s -P -a ::0
	for to in 10.77.0.1 10.77.1.1 10.78.0.1 fd77::1 fd78::1 "$(link_local A va)%vb" "$(link_local A va2)%vb2"; do
		start client B rping -c -a "$to" -p "$PORT" -v -C 3
		finish client && says client rdma-ping-2 || fail "rping to $to" "$TMP/server" "$TMP/client"
	done
	kill_hard server
	serve server rping -s -P -a 10.78.0.1
	start client B ucmatose -s 10.77.0.1 -p "$PORT"
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: 8' || fail "an address nobody is bound to" "$TMP/client"
	start client B rping -c -I 10.77.0.2 -a 10.78.0.1 -p "$PORT" -v -C 3
	finish client && says client rdma-ping-2 || fail "rping from another address" "$TMP/server" "$TMP/client"
	ip link del va2
	finish server || true # it ends itself then
	says server 'device removal' || fail "nobody says that the device is gone" "$TMP/server"
	say "ok    several devices and addresses, link-local ones too; one is removed"
}

# nobody_listens: the host answers, nobody has the port.
nobody_listens() {
	serve server rping -s -a "$IP4_A" # somebody must be there to answer for the host
	start client B ucmatose -s "$IP4_A" -p $((PORT + 1000))
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: 8' || fail "connect to a port nobody has" "$TMP/client"
	kill_hard server
	say "ok    a port nobody listens to: REJECTED, 8"
}

# all_say PATTERN LABEL NAME...: these end, and say that.
all_say() {
	local pattern=$1 label=$2 name
	shift 2
	for name; do
		finish "$name" || true
		says "$name" "$pattern" || fail "$label" "$TMP/$name"
	done
	say "ok    $label"
}

# dead_host: nobody has these addresses; no way leads to those.
dead_host() {
	start dead_4 B ucmatose -s 10.77.0.99
	start dead_6 B ucmatose -s fd77::99
	start lost_4 B ucmatose -s 192.0.2.1
	start lost_6 B ucmatose -s 2001:db8::1
	all_say 'RDMA_CM_EVENT_ADDR_ERROR, error: -110' "a dead host: ADDR_ERROR, -110" dead_4 dead_6
	all_say 'Network is unreachable' "no way to a host: ENETUNREACH" lost_4 lost_6
}

# host_without_rdma: nobody runs an RDMA program there.
host_without_rdma() {
	start empty_4 B ucmatose -s "$IP4_A"
	start empty_6 B ucmatose -s "$IP6_A" -f ip6
	start empty_ud B udaddy -s "$IP4_A"
	all_say 'RDMA_CM_EVENT_UNREACHABLE, error: -111' "a host without RDMA programs: UNREACHABLE, -111" empty_4 empty_6 empty_ud
}

nobody_listens
[ "$WORLD" = loopback ] || dead_host
# Linux's own CM has no ear for ICMP and asks for a minute; as a host it always answers.
[ "$WORLD" = loopback ] || [ -n "$GUEST" ] || host_without_rdma
taken_port
client_killed
for family in 4 6; do
	ping "$family" -v
	ping "$family" -S 60000
	ping "$family" -q
done
any_address 4 0.0.0.0
any_address 6 ::0
any_address 4 ::0
eight_clients
connected 4
connected 6 -c 10 -C 20 -S 5000 -t 32
connected 4 -m -c 5
datagrams 6
datagrams 4 -c 5 -C 20 -S 1000
synchronous
connects 200
group 4 239.7.7.4
# lo has no route for IPv6 groups; Linux's rdma_cm has none on RoCEv2
[ "$WORLD" = loopback ] || [ -n "$GUEST" ] || group 6 ff15::77
for program in ib_{send,write,read,atomic}_{bw,lat}; do
	measure "$program"
done
measure ib_send_bw -c UD -s 1024
nothing_left
[[ $WORLD != veth-* ]] || several_devices
done_testing
