#!/bin/bash
# SPDX-License-Identifier: MIT
# hosts_cm.sh builtin|opensm [WORLD]: strangers' programs that connect by address, on two hosts of a fabric: through one switch and
# through five, paths from the built-in subnet manager or from OpenSM. In the world wire no packet is spared the switches.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=tests/clients/cm.sh
. "$HERE/cm.sh"
export ANYRDMA_FABRIC=cm
MANAGER=$1
enter "${2:-loopback}" "$@"
fabric() { env "${SANITIZER[@]}" "$ANYRDMA" fabric "$@"; }

# up SHAPE FAR OPTIONS...: a new fabric; servers are on node1, clients on the host of this number.
up() {
	local sm=auto
	[ "$MANAGER" = builtin ] || sm=off
	fabric up "${@:3}" "$1" --name cm "--sm=$sm" >"$TMP/up" 2>&1 || fail "fabric up $1" "$TMP/up"
	[ "$MANAGER" = builtin ] || fabric sm opensm >"$TMP/sm" 2>&1 || fail "fabric sm opensm" "$TMP/sm"
	ON_A=(env ANYRDMA_HOST=node1) ON_B=(env "ANYRDMA_HOST=node$2")
	IP4_A=10.47.0.1 IP4_B=10.47.0.$2
	ipv4_only >/dev/null
	say "      $1, $MANAGER"
}

down() { fabric down >"$TMP/down" 2>&1 || fail "fabric down" "$TMP/down"; }

# any_address: a server that is bound to a port only; 127.0.0.1 is its own adapter.
any_address() {
	serve server rping -s -a 0.0.0.0 -v -C 10
	start client B rping -c -a "$IP4_A" -I "$IP4_B" -p "$PORT" -v -C 10
	verdict "rping to a server at 0.0.0.0" 'rdma-ping-9:' 'rdma-ping-9:'
	serve server rping -s -a 0.0.0.0 -v -C 10
	start client A rping -c -a 127.0.0.1 -p "$PORT" -v -C 10
	verdict "rping to itself at 127.0.0.1" 'rdma-ping-9:' 'rdma-ping-9:'
}

# by_name: rdma_getaddrinfo() knows the names of hosts.
by_name() {
	serve server rdma_server -s node1
	start client B rdma_client -s node1 -p "$PORT"
	verdict "rdma_server, rdma_client at node1" 'end 0' 'end 0'
}

# same_port: each host has ports of its own; a second server on one of them is told.
same_port() {
	local port
	serve server rping -s -a "$IP4_A" -C 10 -v
	port=$PORT
	start other B rping -s -a "$IP4_B" -p "$port" -C 10 -v
	until_true "$PATIENCE" listens_rdma "${PID[other]}" "$port" || true
	start client A rping -s -a "$IP4_A" -p "$port"
	! finish client && says client 'rdma_bind_addr: Address already in use' ||
		fail "two servers on one port of a host" "$TMP/server" "$TMP/client"
	start client A rping -c -a "$IP4_B" -p "$port" -C 10 -v
	start client_b B rping -c -a "$IP4_A" -p "$port" -C 10 -v
	local name
	for name in client client_b server other; do
		finish "$name" && says "$name" 'rdma-ping-9:' || fail "$name: two hosts with one port" "$TMP/$name"
	done
	say "ok    two hosts with one port"
}

# by_gid: without IP, the port's GID and a service id (AF_IB).
by_gid() {
	local gid
	gid=$(run A ibv_devinfo -v | sed -n 's/.*GID\[ *0\]:[[:space:]]*//p')
	serve server ucmatose -b "$gid" -f gid -c 5 -C 20
	start client B ucmatose -s "$gid" -f gid -p "$PORT" -c 5 -C 20
	verdict "ucmatose -f gid" 'return status 0' 'return status 0'
	start server A udaddy -b "$gid" -f gid -C 20
	until_true "$PATIENCE" listens_rdma "${PID[server]}" 7174 || true
	start client B udaddy -s "$gid" -f gid -C 20
	verdict "udaddy -f gid" 'return status 0' 'return status 0'
	serve server rstream -b "$gid" -f gid -T v -S 30000 -C 50
	start client B rstream -s "$gid" -f gid -p "$PORT" -T v -S 30000 -C 50
	verdict "rstream -f gid" "$STREAMED" "$STREAMED"
	start client B ucmatose -s "$gid" -f gid -p 7999
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: 8' || fail "by GID to a port nobody has" "$TMP/client"
	start client B ucmatose -s fe80::1 -f gid
	finish client || true
	says client 'RDMA_CM_EVENT_ROUTE_ERROR' || fail "a GID nobody has" "$TMP/client"
	say "ok    by GID: nobody listens, nobody has it"
}

# groups FAR: three members of a group, one of them at the port of who sends; a port leaves with the last of its
# programs, also when that is killed.
groups() {
	local far=$1 address=239.1.1.7 name host
	for host in 1 2 "$far"; do
		ON_A=(env "ANYRDMA_HOST=node$host")
		start "member$host" A stdbuf -oL mckey -m $address -b "10.47.0.$host" -C 20
		until_true "$PATIENCE" says "member$host" 'joined dgid: ff12:4001:ffff' || fail "node$host does not join" "$TMP/member$host"
	done
	ON_A=(env ANYRDMA_HOST=node1)
	start sender A mckey -m $address -b "$IP4_A" -s -C 20
	for name in sender member1 member2 "member$far"; do
		finish "$name" && says "$name" 'return status 0' || fail "mckey: $name" "$TMP/$name" "$TMP/sender"
	done
	say "ok    mckey with three members"
	start member A stdbuf -oL mckey -m $address -b "$IP4_A"
	start second A stdbuf -oL mckey -m $address -b "$IP4_A"
	ON_A=(env ANYRDMA_HOST=node2)
	start witness A stdbuf -oL mckey -m $address -b 10.47.0.2
	ON_A=(env ANYRDMA_HOST=node1)
	for name in member second witness; do
		until_true "$PATIENCE" says $name 'joined dgid' || fail "mckey does not join" "$TMP/$name"
	done
	until_true "$PATIENCE" forwards || fail "no switch forwards the group"
	kill_hard member
	forwards || fail "the port has left, and a program has not"
	kill_hard second
	until_true "$PATIENCE" forwards_not || fail "the last member is dead, and its port has not left"
	kill_hard witness
	say "ok    a port leaves with its last member"
}

# restarted SHAPE FAR: a fabric that is killed comes back as another one; who was joined is joined there.
restarted() {
	local pid name
	start member A stdbuf -oL mckey -m 239.1.1.8 -b "$IP4_A"
	start witness B stdbuf -oL mckey -m 239.1.1.8 -b "$IP4_B"
	for name in member witness; do
		until_true "$PATIENCE" says $name 'joined dgid' || fail "mckey does not join" "$TMP/$name"
	done
	until_true "$PATIENCE" forwards || fail "no switch forwards the group"
	pid=$(head -n 1 "$RUN_DIR/net-${NAMESPACES[0]}/fabric-cm/lock")
	kill -9 "$pid"
	until_true "$PATIENCE" gone "$pid" || fail "the fabric cannot be killed"
	up "$1" "$2"
	until_true "$PATIENCE" forwards || fail "a group is not joined again" "$TMP/member" "$TMP/witness"
	kill_hard member
	kill_hard witness
	say "ok    groups of a fabric that was started again"
}

# joined_once: the same where the fabric that comes back takes long to answer, and the member leaves.
joined_once() {
	local pid
	start once B "$ANYRDMA_BUILD/tests/clients/leaves" "$IP4_B" 239.1.1.9
	until_true "$PATIENCE" says once joined || fail "no join" "$TMP/once"
	{ fabric topology && echo "@fault \"node$1\"[1] delay=600ms"; } >"$TMP/slow"
	pid=$(head -n 1 "$RUN_DIR/net-${NAMESPACES[0]}/fabric-cm/lock")
	kill -9 "$pid"
	until_true "$PATIENCE" gone "$pid" || fail "the fabric cannot be killed"
	up "$TMP/slow" "$1"
	until_true "$PATIENCE" joined_there || fail "the group is not joined again" "$TMP/once"
	sleep 2.5 # an answer too many comes a second later, after the delay
	kill -USR1 "${PID[once]}"
	until_true "$PATIENCE" says once left || fail "it does not leave" "$TMP/once"
	until_true 5 joined_not || fail "it has left, and its port has not" "$TMP/once"
	kill_hard once
	say "ok    who is joined again leaves once"
}

joined_there() { fabric tables | has ' 0xc001 '; }
joined_not() { ! joined_there; }

# forwards: a switch has a group with more than one port.
forwards() { fabric tables | has -E ' 0xc0[0-9a-f]{2} +[0-9]+ +[0-9]+'; }
forwards_not() { ! forwards; }

# streams: rsockets, contents verified.
streams() {
	stream 4 rstream -T v -S 64 -C 100
	stream 4 rstream -T v -S 100000 -C 50
	stream 4 rstream -T v -T b -S 4096 -C 50
	stream 4 riostream -T v -S 30000 -C 50
}

nobody_there() {
	start client B ucmatose -s "$IP4_A" -p 7999
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: 8' || fail "connect to a port nobody has" "$TMP/client"
	start client B ucmatose -s 10.47.99.99
	finish client || true
	says client 'RDMA_CM_EVENT_ADDR_ERROR, error: -113' || fail "an address nobody has" "$TMP/client"
	say "ok    nobody listens, nobody has the address"
}

# killed: a server that is killed leaves no listener behind, a client no connection.
killed() {
	serve server rping -s -P -a "$IP4_A"
	start victim B rping -c -a "$IP4_A" -p "$PORT" -v
	until_true "$PATIENCE" says victim rdma-ping- || fail "no ping" "$TMP/server" "$TMP/victim"
	kill_hard victim
	start client B rping -c -a "$IP4_A" -p "$PORT" -v -C 10
	finish client && says client 'rdma-ping-9:' || fail "the next client" "$TMP/server" "$TMP/client"
	kill_hard server
	start client B ucmatose -s "$IP4_A" -p "$PORT"
	finish client || true
	says client 'RDMA_CM_EVENT_REJECTED, error: 8' || fail "a killed server" "$TMP/client"
	NEXT_PORT=$PORT
	ping 4
	say "ok    killed clients and servers"
}

all() {
	ping 4
	any_address
	by_name
	same_port
	connected 4 -c 10 -C 20
	datagrams 4 -c 5 -C 20
	synchronous
	connects 100
	by_gid
	streams
	groups "${IP4_B##*.}"
	nobody_there
	killed
	measure ib_send_bw
	measure ib_write_lat
	measure ib_read_bw
	measure ib_send_lat -c UD
	eight_clients
}

if [ "$MANAGER" = opensm ] && ! command -v opensm /usr/sbin/opensm >/dev/null; then skip "needs opensm"; fi
up star:4 4
all
restarted star:4 4
[ "$MANAGER" != builtin ] || joined_once 4
down
up fat-tree:4 16
all
for program in ib_send_lat ib_write_bw ib_read_lat ib_atomic_bw ib_atomic_lat; do
	measure $program
done
copies 3000000
down
up pair 2 --ip fd47::/64
by_name
down
done_testing
