#!/bin/bash
# SPDX-License-Identifier: MIT
# info.sh: the programs that only look, as an ordinary user: devices, their attributes, their events.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter veth-1500 "$@"
as_ordinary_user

# expect LABEL OUTPUT PATTERN
expect() {
	if grep -Eqs -- "$3" "$2"; then say "ok    $1"; else fail "$1: no line matches '$3'" "$2"; fi
}

devices_are_listed() {
	run A ibv_devices >"$TMP/devices" 2>&1 || fail "ibv_devices" "$TMP/devices"
	expect "ibv_devices lists the interface" "$TMP/devices" '^ *roce_va[[:space:]]+[0-9a-f]{16}'
	expect "ibv_devices lists the loopback" "$TMP/devices" '^ *roce_lo[[:space:]]+[0-9a-f]{16}'
}

attributes_are_told() {
	learn_gids
	expect "the transport is InfiniBand's" "$TMP/devinfo_A" 'transport:[[:space:]]+InfiniBand \(0\)'
	expect "the port is up" "$TMP/devinfo_A" 'state:[[:space:]]+PORT_ACTIVE \(4\)'
	expect "the link layer is Ethernet" "$TMP/devinfo_A" 'link_layer:[[:space:]]+Ethernet'
	expect "1500 bytes carry an MTU of 1024" "$TMP/devinfo_A" 'active_mtu:[[:space:]]+1024'
	expect "IPv4 address is a GID" "$TMP/devinfo_A" "GID\[.*::ffff:$IP4_A, RoCE v2"
	expect "IPv6 address is a GID" "$TMP/devinfo_A" "GID\[.*$IP6_A, RoCE v2"
}

# An address that comes and goes while a program has the device open.
events_are_told() {
	start watch A ibv_asyncwatch -d "$(device A)"
	until_true 10 says watch 'async event FD' || fail "ibv_asyncwatch does not start" "$TMP/watch"
	on A ip addr add 10.77.0.99/24 dev va
	until_true 10 says watch 'event_type' || fail "no event for a new address" "$TMP/watch"
	kill_hard watch
	expect "a new address raises an event" "$TMP/watch" 'event_type IBV_EVENT_GID_CHANGE'
	learn_gids
	expect "and is a GID" "$TMP/devinfo_A" 'GID\[.*::ffff:10.77.0.99, RoCE v2'
	on A ip addr del 10.77.0.99/24 dev va
	learn_gids
	! grep -q 10.77.0.99 "$TMP/devinfo_A" || fail "an address that went is still a GID" "$TMP/devinfo_A"
}

# The interface goes down and up again while a program has the device open.
port_follows_its_interface() {
	start port A ibv_asyncwatch -d "$(device A)"
	until_true 10 says port 'async event FD' || fail "ibv_asyncwatch does not start" "$TMP/port"
	on A ip link set va down
	until_true 10 says port 'event_type IBV_EVENT_PORT_ERR' || fail "no event for an interface that went down" "$TMP/port"
	say "ok    an interface that goes down is told"
	on A ip link set va up
	until_true 10 says port 'event_type IBV_EVENT_PORT_ACTIVE' || fail "no event for an interface that came up" "$TMP/port"
	kill_hard port
	say "ok    and so is one that comes up again"
}

# mtu_is BYTES: the port's, as a program that starts now sees it.
mtu_is() {
	run A ibv_devinfo -d "$(device A)" >"$TMP/devinfo_A" 2>&1 || fail "ibv_devinfo" "$TMP/devinfo_A"
	[ "$(active_mtu)" = "$1" ] || fail "active_mtu is not $1" "$TMP/devinfo_A"
}

# set_mtu BYTES: of the wire's both ends.
set_mtu() {
	on A ip link set va mtu "$1"
	on B ip link set vb mtu "$1"
}

# The interface's MTU changes under a connection, whose path MTU stays as it was agreed: where it is too long, the kernel fragments.
# -u 18: while only one end has it, packets are lost. Below 1280 the interface loses its IPv6 addresses.
connections_outlive_a_new_mtu() {
	local bytes
	start_pair mtu 4 ib_write_bw -F -m 1024 -s 65536 -n 10000000 -u 18
	more_traffic 4 || fail "no traffic" "$TMP/mtu.server" "$TMP/mtu.client"
	for bytes in 9000:4096 700:512 1500:1024; do
		set_mtu "${bytes%:*}"
		mtu_is "${bytes#*:}"
		more_traffic 4 || fail "no traffic at an MTU of $bytes" "$TMP/mtu.server" "$TMP/mtu.client"
		say "ok    an MTU of ${bytes%:*} carries one of ${bytes#*:}, and a connection of 1024 goes on"
	done
	content mtu.client && content mtu.server || fail "complaints" "$TMP/mtu.server" "$TMP/mtu.client"
	kill -STOP "${PID[mtu.server]}" # or it ends by itself, when it hears that the client is gone
	kill_hard mtu.client
	kill_hard mtu.server
}

# 32 GIDs of a device, 64 interfaces: what goes beyond is left out, and the rest is there as ever.
tables_are_as_long_as_they_say() {
	local i
	on A sh -c 'for i in $(seq 100 149); do ip addr add "10.77.0.$i/24" dev va; done'
	run A ibv_devinfo -v -d "$(device A)" >"$TMP/devinfo_A" 2>&1 || fail "ibv_devinfo" "$TMP/devinfo_A"
	i=$(grep -c 'GID\[' "$TMP/devinfo_A")
	[ "$i" = 32 ] || fail "$i GIDs of a device with 50 addresses" "$TMP/devinfo_A"
	expect "32 GIDs, the first address among them" "$TMP/devinfo_A" "GID\[.*::ffff:$IP4_A, RoCE v2"
	on A sh -c 'for i in $(seq 40); do
		ip link add "x$i" type veth peer name "y$i"
		ip addr add "10.78.$i.1/32" dev "x$i"
		ip addr add "10.79.$i.1/32" dev "y$i"
		ip link set "x$i" up
		ip link set "y$i" up
	done'
	run A ibv_devices >"$TMP/devices" 2>&1 || fail "ibv_devices" "$TMP/devices"
	i=$(grep -c ' roce_' "$TMP/devices")
	[ "$i" = 64 ] || fail "$i devices with 80 interfaces more" "$TMP/devices"
	expect "64 interfaces, the first among them" "$TMP/devices" '^ *roce_va[[:space:]]'
}

devices_are_listed
attributes_are_told
events_are_told
connections_outlive_a_new_mtu
port_follows_its_interface
tables_are_as_long_as_they_say
done_testing
