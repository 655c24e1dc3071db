# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Strangers' pairs that connect by address, for scripts that have sourced lib.sh.

# ping FAMILY ARGS...: a client whose connection breaks ends with status 0, so it must say its last word.
ping() {
	local family=$1 a
	shift
	a=$(address "$family" A)
	serve server rping -s -a "$a" -V -C 10 "$@"
	start client B rping -c -a "$a" -p "$PORT" -v -V -C 10 "$@"
	verdict "IPv$family rping -V -C 10 $* ${ANYRDMA_IWARP:-}" 'rdma-ping-9:' ''
}

# connected FAMILY ARGS...: server and client take the same arguments.
connected() {
	local family=$1 a
	shift
	a=$(address "$family" A)
	serve server ucmatose -b "$a" "$@"
	start client B ucmatose -s "$a" -p "$PORT" "$@"
	verdict "IPv$family ucmatose $*" 'return status 0' 'return status 0'
}

# datagrams FAMILY ARGS...: udaddy has a port of its own (its -p is the port space).
datagrams() {
	local family=$1 a
	shift
	a=$(address "$family" A)
	start server A udaddy -b "$a" "$@"
	until_true "$PATIENCE" listens_rdma "${PID[server]}" 7174 || true
	start client B udaddy -s "$a" "$@"
	verdict "IPv$family udaddy $*" 'return status 0' 'return status 0'
}

# any_address FAMILY WILDCARD: a server that is bound to a port only.
any_address() {
	serve server rping -s -a "$2" -v -C 10
	start client B rping -c -a "$(address "$1" A)" -I "$(address "$1" B)" -p "$PORT" -v -C 10
	verdict "IPv$1 rping to a server at $2" 'rdma-ping-9:' 'rdma-ping-9:'
}

# taken_port: the port space is the host's, not the process's; a crash gives it back.
taken_port() {
	serve server rping -s -a "$IP4_A"
	start client A rping -s -a "$IP4_A" -p "$PORT"
	! finish client && says client 'rdma_bind_addr: Address already in use' ||
		fail "two servers on one port" "$TMP/server" "$TMP/client"
	kill_hard server
	NEXT_PORT=$PORT
	serve server rping -s -a "$IP4_A" -C 10 -v
	start client B rping -c -a "$IP4_A" -p "$PORT" -C 10 -v
	verdict "EADDRINUSE across processes, and the port of a killed one" 'rdma-ping-9:' 'rdma-ping-9:'
}

# client_killed: in mid transfer; the server, which may have requests of its own to time out, serves the next.
client_killed() {
	serve server rping -s -P -a "$IP4_A"
	start victim B rping -c -a "$IP4_A" -p "$PORT" -v
	until_true "$PATIENCE" says victim rdma-ping- || fail "no ping" "$TMP/server" "$TMP/victim"
	kill_hard victim
	start client B rping -c -a "$IP4_A" -p "$PORT" -v -C 10
	finish client && says client 'rdma-ping-9:' || fail "the client after a killed one" "$TMP/server" "$TMP/client"
	kill_hard server
	say "ok    a client is killed, the next one served"
}

# group FAMILY ADDRESS: mckey has no receives for the copies of what it sends itself; they are dropped.
group() {
	local COMPLAINTS=${COMPLAINTS/|dropped/}
	start server A mckey -m "$2" -b "$(address "$1" A)"
	until_true "$PATIENCE" in_group "$2" "$NETDEV_A" || fail "mckey does not join $2" "$TMP/server"
	start client B mckey -m "$2" -b "$(address "$1" B)" -s
	verdict "mckey $2" 'return status 0' 'data transfers complete'
}

# measure PROGRAM ARGS...: perftest's -R knows IPv4 only.
measure() {
	local program=$1 tries=3
	shift
	while start_measure "$program" "$@" && [ "$GUEST" = B ] && came_too_early && [ $((tries -= 1)) -gt 0 ]; do
		kill_hard server
		finish client || true
	done
	verdict "$program -R $*" "$RESULT" ''
}

start_measure() {
	serve server "$1" -R -F -n 50 "${@:2}"
	start client B "$1" -R -F -n 50 -p "$PORT" "${@:2}" "$IP4_A"
}

# came_too_early: between its two connections perftest's server does not listen for a moment. Our clients try
# again, Linux's take the first no for an answer.
came_too_early() {
	until_true "$PATIENCE" gone "${PID[client]}" && says client 'REJECTED; error: 8'
}

# eight_clients: of one server, all at work at the same time. Each begins when the one before is at work: rping
# forgets a request when the next one comes before its other thread has seen it.
eight_clients() {
	local i
	serve server rping -s -P -a "$IP4_A" -V
	for i in {1..8}; do
		start "client_$i" B rping -c -a "$IP4_A" -p "$PORT" -v -V -C 1000000
		until_true "$PATIENCE" says "client_$i" 'rdma-ping-' || true
	done
	for i in {1..8}; do
		! gone "${PID[client_$i]}" || fail "rping: client $i of a persistent server" "$TMP/server" "$TMP/client_$i"
		kill_hard "client_$i"
	done
	kill_hard server
	say "ok    rping -P and eight clients at once"
}

# synchronous: rdma-core's two smallest programs.
synchronous() {
	serve server rdma_server -s "$IP4_A"
	start client B rdma_client -s "$IP4_A" -p "$PORT"
	verdict "rdma_server, rdma_client" 'end 0' 'end 0'
}

# connects COUNT
connects() {
	serve server cmtime -b "$IP4_A"
	start client B cmtime -s "$IP4_A" -p "$PORT" -c "$1"
	finish client && ! says client 'event:|error' || fail "cmtime -c $1" "$TMP/server" "$TMP/client"
	kill_hard server
	say "ok    cmtime -c $1"
}

STREAMED='^(custom|[0-9]+[km]?_(lat|bw)) ' # a line of results

# stream FAMILY PROGRAM ARGS...: rstream or riostream, both ends with the same arguments.
stream() {
	local family=$1 program=$2 a
	shift 2
	a=$(address "$family" A)
	serve server "$program" -b "$a" "$@"
	start client B "$program" -s "$a" -p "$PORT" "$@"
	verdict "IPv$family $program $*" "$STREAMED" "$STREAMED"
}

# sum SIDE FILE
sum() { on "$1" sha256sum "$2" | cut -d ' ' -f 1; }

# copies BYTES: rcopy, whose server goes on for ever.
copies() {
	local from=$TMP/from to=$TMP/to
	on B sh -c "head -c $1 /dev/urandom >$from"
	on A rm -f "$to"
	serve server rcopy
	start client B rcopy "$from" "$IP4_A:$to" -p "$PORT"
	finish client && [ "$(sum B "$from")" = "$(sum A "$to")" ] || fail "rcopy of $1 bytes" "$TMP/server" "$TMP/client"
	kill_hard server
	say "ok    rcopy of $1 bytes"
}
