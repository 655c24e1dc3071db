#!/bin/bash
# SPDX-License-Identifier: MIT
# sockets.sh WORLD: programs with ordinary sockets, over RDMA by "anyrdma run --sockets"; and udpong, whose datagrams are
# those of rsocket.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"
needs_ipv6
in_own_network || skip "counts the TCP connections of the machine: needs a network namespace of its own"
PYTHON=(/usr/bin/python3)
head -c 10000000 /dev/urandom >"$TMP/file"

# tcp_opens: connections that were opened by TCP on side B, ever.
tcp_opens() { on B awk '/^Tcp: [0-9]/ { print $6 }' /proc/self/net/snmp; }

# serve KIND PROGRAM ARGS...: a server on A with sockets of that kind (stream, dgram, all, or none: plain) at port
# $PORT, which is put in the place of the word PORT.
serve() {
	local kind=--sockets=$1
	shift
	PORT=$NEXT_PORT NEXT_PORT=$((NEXT_PORT + 1))
	[ "$kind" != --sockets=none ] || kind=--
	start server A "$kind" "${@//PORT/$PORT}"
	until_true "$PATIENCE" serving "$kind" || fail "$* does not listen ($WORLD)" "$TMP/server"
}

# serving KIND: by RDMA, or by TCP or UDP.
serving() {
	case $1 in
	--) listens "${PID[server]}" "$PORT" ;;
	--sockets=dgram) bound_udp "${PID[server]}" "$PORT" ;;
	*) listens_rdma "${PID[server]}" "$PORT" ;;
	esac
}

bound_udp() {
	gone "$1" || grep -qsi "^ *[0-9]*: [0-9a-f]*:$(printf %04x "$2") " "/proc/$1/net/udp" "/proc/$1/net/udp6"
}

# verdict LABEL PATTERN OPENS: the client ended well, said so, and as many TCP connections were opened as were meant.
verdict() {
	local status=0 opens
	finish client || status=1
	opens=$(($(tcp_opens) - OPENS))
	if [ "$status" -eq 0 ] && { [ -z "$2" ] || says client "$2"; } && [ "$opens" -eq "$3" ]; then
		say "ok    $1"
	else
		fail "$1, $opens TCP connections ($WORLD)" "$TMP/server" "$TMP/client"
	fi
}

# client LABEL PATTERN OPENS PROGRAM ARGS...: on B, to its verdict.
client() {
	OPENS=$(tcp_opens)
	start client B "${@:4}"
	verdict "$1" "$2" "$3"
}

end_server() { kill_hard server; }

# address FAMILY: of side A.
address() { local -n addr=IP$1_A && echo "$addr"; }

# iperf FAMILY ARGS...
iperf() {
	local family=$1 kind=stream
	shift
	case " $* " in *" -u "*) kind=all ;; esac
	serve "$kind" iperf3 -s -1 -p PORT
	client "IPv$family iperf3 $*" ' receiver$' 0 \
		"--sockets=$kind" iperf3 -c "$(address "$family")" -p "$PORT" "$@"
	finish server || fail "iperf3 -s" "$TMP/server"
}

iperf 4 -n 200M
iperf 4 -n 200M -R
iperf 4 -n 200M -P 4
iperf 4 -n 50M -P 2 -R
iperf 4 -t 1 --bidir
iperf 6 -n 100M
iperf 4 -u -n 10M -b 100M -l 1000

# asked_to_end NAME PEER: iperf3 leaves whatever call it is in by longjmp(), tells its peer, and ends; so does the peer.
asked_to_end() {
	local name
	serve stream iperf3 -s -1 -p PORT
	start client B --sockets iperf3 -c "$IP4_A" -p "$PORT" -t 60
	more_traffic 4 || fail "no traffic" "$TMP/server" "$TMP/client"
	kill -TERM "${PID[$1]}"
	for name; do
		finish "$name" || true
		! says "$name" 'still running' || fail "iperf3 does not end ($name)" "$TMP/server" "$TMP/client"
	done
}

for i in 1 2 3; do
	asked_to_end server client
	asked_to_end client server
done
say "ok    iperf3 -s and -c are asked to end in mid transfer"

# ---- a web server ----
fetch() { # LABEL OPENS OPTION
	rm -f "$TMP/fetched"
	client "$1" '' "$2" "$3" curl -sS --noproxy '*' -o "$TMP/fetched" "http://$IP4_A:$PORT/file"
	cmp "$TMP/file" "$TMP/fetched" || fail "$1: other contents" "$TMP/client"
}

if [ -z "${SANITIZED:-}" ]; then # under the address sanitizer curl stops in setlocale(), also without us
	serve stream "${PYTHON[@]}" -m http.server --directory "$TMP" --bind "$IP4_A" PORT
	fetch "http.server and curl" 0 --sockets
	fetch "http.server and a curl that knows no RDMA" 1 --
	end_server
	serve none "${PYTHON[@]}" -m http.server --directory "$TMP" --bind "$IP4_A" PORT
	fetch "a http.server that knows no RDMA, and curl" 1 --sockets
	ANYRDMA_DEVICES=iwarp fetch "the same with iWARP, which hears no MPA" 1 --sockets
	end_server
fi

# ---- event loop, threads, processes ----
for kind in asyncio thread fork; do
	serve stream "${PYTHON[@]}" "$HERE/sockets.py" serve "$kind" "$IP4_A" PORT
	client "eight clients of a server with $kind" 'all bytes came back' 0 \
		--sockets "${PYTHON[@]}" "$HERE/sockets.py" talk "$IP4_A" "$PORT" 8
	end_server
done

# ---- datagrams ----
# patiently PROGRAM ARGS...: see patient_rpoll.c. Before librdmacm; the address sanitizer's runtime has to be the first.
patiently() {
	[ -n "${SANITIZED:-}" ] || LD_PRELOAD=$ANYRDMA_BUILD/tests/clients/libpatient_rpoll.so:$LD_PRELOAD
	exec "$@"
}
export -f patiently
export ANYRDMA_BUILD

# pong FAMILY ARGS...: udpong uses rsocket itself.
pong() {
	local a
	a=$(address "$1")
	serve dgram udpong -b "$a" -p PORT
	client "IPv$1 udpong ${*:2}" '^custom ' 0 -- \
		bash -c 'patiently udpong "$@"' - -s "$a" -p "$PORT" "${@:2}"
	end_server
}

pong 4 -S 100 -C 5000
pong 4 -S 1000 -C 5000 -T a
pong 4 -S 64 -C 200 -T b -T e
pong 4 -S 1536 -C 200 -T e
pong 6 -S 500 -C 200 -T e
pong 6 -S 2020 -C 1000 -T b
done_testing
