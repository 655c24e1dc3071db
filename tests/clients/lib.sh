# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# Worlds, pairs and verdicts for tests that run strangers' programs under anyrdma.
#
# A test sources this file, enters a world and runs pairs of programs in it: a server on side A, a client on
# side B, both through "anyrdma run". Nothing waits for time: a client starts when its server listens, and
# every wait has a deadline. The first failure ends the test and shows what both programs said
# (KEEP_GOING=1 goes on to the next).
#
# A world is a network namespace of the test's own, so that tests neither disturb each other nor the machine:
#   loopback      both sides on one host: through shared memory, as it is by default
#   wire          the same through the network stack (ANYRDMA_LOCAL=off)
#   veth-MTU      two namespaces joined by a veth pair of that MTU
#   lossy         two namespaces; lossy_wire joins them
#   fabric        hosts of an InfiniBand fabric, three switches apart, addressed by LID
#   fabric-hops   the same, each packet through the switches (ANYRDMA_LOCAL=off)
#   rxe-…, siw-…  one side is a guest with Linux's own RoCE, or iWARP: tests/interop/guest.sh
# The namespaces have no names; they live as long as the processes in them, so nothing can be left behind.
# Variables with a side in their name (ON_A, IP4_B, NETDEV_A) are read through namerefs.
# shellcheck disable=SC2034

set -Eeuo pipefail
trap 'echo "FAIL  ${BASH_SOURCE[0]##*/} line $LINENO: $BASH_COMMAND"' ERR

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ANYRDMA_BUILD=${ANYRDMA_BUILD:-$HERE/../../build}
ANYRDMA=$ANYRDMA_BUILD/bin/anyrdma
PATIENCE=${PATIENCE:-30} # seconds that a step may take, or a pair of programs without moving anything

# "anyrdma run" loads a sanitized build's runtime; the stranger's own leaks are not our business.
SANITIZER=()
if [ -n "${SANITIZED:-}" ]; then
	SANITIZER=(env ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1)
	PATIENCE=$((PATIENCE * 4))
fi

TMP=$(mktemp -d "${TMPDIR:-/tmp}/anyrdma-test.XXXXXX")
# Where the adapters of the world find each other: in memory, as usually, since files by the hundred come and go there;
# as_ordinary_user takes the usual place.
OWN_RUN_DIR=$TMP/run
[ ! -w /dev/shm ] || OWN_RUN_DIR=/dev/shm/${TMP##*/}
RUN_DIR=$OWN_RUN_DIR
export ANYRDMA_DIR=$RUN_DIR
declare -A PID=()        # name of a program that was started: its process id
declare -A GID=()        # "side family": index in the side's GID table
declare -a ON_A=() ON_B=() IDENTITY=() NAMESPACES=()
GUEST= # the side that is a guest, if one is
declare -a HOST_A=() HOST_B=() # on a fabric: the option that says which of its hosts a side is
FAILURES=0
NEXT_PORT=18515
trap leave EXIT
trap 'exit 130' INT TERM

leave() {
	local status=$? name
	for name in "${!PID[@]}"; do
		kill -9 "${PID[$name]}" 2>/dev/null || true
		wait "${PID[$name]}" 2>/dev/null || true
	done
	[ "${#HOST_A[@]}" -eq 0 ] || the_fabric down >/dev/null 2>&1 || true
	remove_run_dir
	if [ -n "${KEEP_OUTPUT:-}" ]; then echo "outputs kept in $TMP"; else rm -rf "$TMP"; fi
	exit "$status"
}

# remove_run_dir: the usual place outlives our namespaces; what lies there in their names goes with them. Only what is ours:
# root of a user namespace has the name of the real one, whose directory may be there, with numbers that are used again.
remove_run_dir() {
	local inode
	rm -rf "$OWN_RUN_DIR"
	[ "$RUN_DIR" != "$OWN_RUN_DIR" ] && [ -w "$RUN_DIR" ] && in_own_network || return 0
	for inode in "${NAMESPACES[@]}"; do
		rm -rf "$RUN_DIR/net-$inode"
	done
}

# ---- words to the reader ------------------------------------------------------------------------------

say() { printf '%s\n' "$*"; }

# fail WHAT [OUTPUT...]: says what went wrong and shows the named outputs.
fail() {
	local what=$1 name
	shift
	say "FAIL  $what"
	for name; do
		say "------ ${name##*/}"
		tail -n 60 "$name" 2>/dev/null || true
	done
	say "------"
	FAILURES=$((FAILURES + 1))
	[ -n "${KEEP_GOING:-}" ] || exit 1
}

# skip WHY: this machine cannot run the test. In continuous integration it must be able to (tests/run).
skip() {
	say "SKIP  $1"
	exit 77
}

done_testing() {
	[ -z "$GUEST" ] || sequence_kept
	[ "$FAILURES" -eq 0 ] || exit 1
}

# ---- waiting for conditions ---------------------------------------------------------------------------

# until_true SECONDS COMMAND...: polls until COMMAND succeeds; fails at the deadline.
until_true() {
	local deadline=$((SECONDS + $1 + 1))
	shift
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.02
	done
}

gone() { ! kill -0 "$1" 2>/dev/null; }

# has ARGS...: grep at the end of a pipe. It reads all, unlike grep -q, whose early end would be the failure of who writes.
has() { grep "$@" >/dev/null; }

# listens_rdma PID PORT: the process on side A listens on the RDMA port, or is over. A claim is four words behind the
# records of processes, its port and flags first, the process id and a host's number last (src/host/ports_table.h).
listens_rdma() {
	local port pid
	gone "$1" && return 0
	if [ "$GUEST" = A ]; then
		guest_listens_rdma "$2"
		return
	fi
	port=$(printf %04x "$2") pid=$(printf %08x "$1")
	od -An -v -tx8 -w32 -j16416 "$RUN_DIR/net-${NAMESPACES[0]}/processes-${ANYRDMA_PORT:-4791}" 2>/dev/null |
		awk -v port="$port" -v pid="$pid" \
			'substr($4, 9) == pid && substr($1, 13) == port && substr($1, 5, 1) ~ /[37bf]/ { found = 1 }
			END { exit !found }'
}

# in_group ADDRESS NETDEV: the interface on side A is a member of the IPv4 or IPv6 group.
in_group() { on A ip maddr show dev "$2" | has -w "$1"; }

# listens PID PORT: something listens on the TCP port on side A, or the process is over.
listens() {
	local listening
	listening="^ *[0-9]*: [0-9a-f]*:$(printf %04x "$2") [0-9a-f]*:0000 0a "
	gone "$1" || on A cat /proc/net/tcp /proc/net/tcp6 | has -i "$listening"
}

# says NAME PATTERN: the program's output has a line that matches.
says() { grep -Eqs -- "$2" "$TMP/$1"; }

# traffic: the bytes that our own interface (side A's, when both are ours) has sent and received; through shared memory, what the adapters of all live
# processes say they have, and have moved themselves.
traffic() {
	case $WORLD in
	loopback | fabric*) "$HERE/../counters.py" traffic "$RUN_DIR" ;;
	*) interface_traffic ;;
	esac
}

interface_traffic() { awk -v dev="$(netdev "$([ "$GUEST" = A ] && echo B || echo A)"):" '$1 == dev { printf "%.0f", $2 + $10 }' /proc/net/dev; }

traffic_beyond() { [ "$(traffic)" -ge "$1" ]; }

# counted MIB: what traffic says of so much. Of large messages by reference, through shared memory, it has the headers only: a 64th.
counted() { [[ $WORLD = @(loopback|fabric) ]] && echo $(($1 << 14)) || echo $(($1 << 20)); }

# more_traffic MIB: waits until that much more has passed that interface.
more_traffic() { until_true "$PATIENCE" traffic_beyond $(($(traffic) + $(counted "$1"))); }

# goes_its_way: every queue pair of every program on side A takes the way of this world, as "anyrdma devices" says.
goes_its_way() {
	local way='0 through shared memory, [1-9][0-9]* over the network'
	[[ $WORLD != @(loopback|fabric) ]] || way='[1-9][0-9]* through shared memory, 0 over the network'
	on A env ${HOST_A[1]:+"ANYRDMA_HOST=${HOST_A[1]}"} "$ANYRDMA" devices | awk -v way="$way\$" \
		'/over the network$/ { all++; if ($0 ~ way) good++ } END { exit !(all && all == good) }'
}

# cpu_ticks PID: user and system time of all its threads, in clock ticks.
cpu_ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'; }

# ---- worlds -------------------------------------------------------------------------------------------

# in_own_network: we are in another network namespace than the one we came from. Whatever the environment says: nothing
# is made in the machine's own.
in_own_network() { [ -n "${LEFT_NETWORK:-}" ] && [ "$LEFT_NETWORK" != "$(readlink /proc/self/ns/net)" ]; }

# own_network "$@": runs the script again in a network namespace of its own: plainly as root, else inside
# a user namespace. Returns 1 where neither is allowed.
own_network() {
	local how
	! in_own_network || return 0
	for how in -n -Urn; do
		if unshare "$how" true 2>/dev/null; then
			rm -rf "$TMP"
			LEFT_NETWORK=$(readlink /proc/self/ns/net) exec unshare "$how" -- "$0" "$@"
		fi
	done
	return 1
}

# own_ports: on the machine's own loopback, beside other tests and the user's programs.
own_ports() {
	NEXT_PORT=$((20000 + $$ % 400 * 100))
	export ANYRDMA_PORT=$((10000 + $$ % 10000))
}

# enter WORLD "$@": makes the world; the script's own arguments are for running it again.
enter() {
	local world=$1
	shift
	[ -x "$ANYRDMA" ] || fail "$ANYRDMA is not there: build first, or set ANYRDMA_BUILD"
	case $world in
	loopback | wire)
		unset ANYRDMA_LOCAL
		[ "$world" = loopback ] || export ANYRDMA_LOCAL=off
		own_network "$@" || own_ports
		! in_own_network || ip link set lo up
		on_loopback
		;;
	veth-*)
		own_network "$@" || skip "needs root or user namespaces to make network namespaces"
		between_namespaces "${world#veth-}"
		;;
	fabric | fabric-hops)
		unset ANYRDMA_LOCAL
		[ "$world" = fabric ] || export ANYRDMA_LOCAL=off
		own_network "$@" || own_ports
		! in_own_network || ip link set lo up
		on_loopback
		;;
	lossy)
		own_network "$@" || skip "needs root or user namespaces to make network namespaces"
		second_namespace
		;;
	rxe-* | siw-*)
		GUEST_RDMA=${world%%-*}
		# shellcheck source=tests/interop/guest.sh
		. "$HERE/../interop/guest.sh"
		make_guest # may need the network
		own_network "$@" || skip "needs root or user namespaces to make network namespaces"
		with_guest "${world#*-}"
		;;
	*) fail "no such world: $world" && exit 2 ;;
	esac
	WORLD=$world
	has_ipv6 || ipv4_only
	NAMESPACES=("$(network_of A)" "$(network_of B)")
	mkdir -m 700 "$RUN_DIR"
	[[ $world != fabric* ]] || on_hosts
}

# on_hosts: the two sides are the first and the last host of a fabric. $FABRIC is another description of one; with FABRIC_SM=off
# its ports wait for a subnet manager, with FABRIC_SM=opensm OpenSM has set them up.
on_hosts() {
	local sm=${FABRIC_SM:-auto}
	HOST_A=(--host node1)
	export ANYRDMA_FABRIC=world
	[ "$sm" != opensm ] || [ -n "$(command -v opensm || command -v /usr/sbin/opensm)" ] || skip "needs opensm"
	the_fabric up --quiet --name world --sm="${sm/opensm/off}" "${FABRIC:-tree:4,2,2}" >"$TMP/fabric" 2>&1 ||
		fail "fabric up" "$TMP/fabric"
	[ "$sm" != opensm ] || the_fabric sm opensm >"$TMP/sm" 2>&1 || fail "fabric sm opensm" "$TMP/sm"
	HOST_B=(--host "$(the_fabric hosts | awk 'NR > 1 { last = $1 } END { print last }')")
}

the_fabric() { "${SANITIZER[@]}" "$ANYRDMA" fabric "$@"; }

# flap NAME SWITCH FIRST [AS...]: cuts and mends the cables of three ports, from FIRST on, a thousand times, by the socket of
# the fabric of that name: faster than a subnet manager sweeps.
flap() {
	"${@:4}" python3 - "$RUN_DIR/net-${NAMESPACES[0]}/fabric-$1/console" "$2" "$3" <<-'END'
		import socket, sys
		def ask(*words):
		    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
		    s.connect(sys.argv[1])
		    s.sendall(b"".join(w.encode() + b"\0" for w in words))
		    s.shutdown(socket.SHUT_WR)
		    while s.recv(65536):
		        pass
		for i in range(1000):
		    port = "%s[%d]" % (sys.argv[2], int(sys.argv[3]) + i % 3)
		    ask("cut", port)
		    ask("mend", port)
	END
}

# fabric_process: its id.
fabric_process() { head -n 1 "$RUN_DIR/net-${NAMESPACES[0]}/fabric-world/lock"; }

# has_ipv6: side A has its IPv6 address.
has_ipv6() { on A ip -6 -o addr show dev "$NETDEV_A" 2>/dev/null | has -w "inet6 $IP6_A"; }

# ipv4_only: pairs that would go by IPv6 go by IPv4; scripts with more to say about IPv6 ask has_ipv6 themselves.
ipv4_only() {
	say "      there is no IPv6 here: by IPv4 in its place"
	IP6_A=$IP4_A IP6_B=$IP4_B
}

# needs_ipv6: for a script of which half is about IPv6.
needs_ipv6() { [ "$IP6_A" != "$IP4_A" ] || skip "there is no IPv6 here"; }

on_loopback() {
	NETDEV_A=lo NETDEV_B=lo
	IP4_A=127.0.0.1 IP4_B=127.0.0.1 IP6_A=::1 IP6_B=::1
}

# second_namespace: side A is the namespace the script is in, side B that of a sleeping child.
second_namespace() {
	NETDEV_A=va NETDEV_B=vb
	IP4_A=10.77.0.1 IP4_B=10.77.0.2 IP6_A=fd77::1 IP6_B=fd77::2
	setpriv --pdeathsig KILL unshare -n sleep infinity &
	PID[namespace_b]=$!
	until_true 5 other_network "$!" || fail "no second network namespace"
	ON_B=(nsenter -t "$!" -n --)
}

# between_namespaces MTU: joins the two by a veth pair.
between_namespaces() {
	second_namespace
	ip link add va mtu "$1" type veth peer name vb mtu "$1" netns "${PID[namespace_b]}"
	connect_sides
}

# lossy_wire MTU ARGS...: joins them by tests/clients/lossy_wire, in place of the wire that was there.
lossy_wire() {
	local mtu=$1 side
	shift
	start_wire "$@"
	for side in A B; do
		on "$side" ip link set "$(netdev "$side")" mtu "$mtu" txqueuelen 10000
	done
	connect_sides
}

# start_wire ARGS...: va here and vb in the second namespace, and what happens in between.
start_wire() {
	[ -z "${PID[wire]:-}" ] || kill_hard wire
	GID=()
	rm -f "$TMP/wire" # what the one before said
	setpriv --pdeathsig KILL "$WIRE" va vb "${PID[namespace_b]}" "$@" >"$TMP/wire" 2>&1 &
	PID[wire]=$!
	until_true 5 says wire ready || skip "cannot make TAP interfaces: $(cat "$TMP/wire")"
}

# connect_sides: addresses on both ends of the wire.
connect_sides() {
	bring_up va "$IP4_A" "$IP6_A"
	"${ON_B[@]}" bash -c "$(declare -f bring_up); bring_up vb $IP4_B $IP6_B"
	until_true 10 is_up A || fail "va does not come up"
	until_true 10 is_up B || fail "vb does not come up"
}

# network_of SIDE: its namespace, by the name our run directory has for it.
network_of() { [ "$1" = "$GUEST" ] && echo none || on "$1" stat -Lc %i /proc/self/ns/net; }

other_network() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

# bring_up NETDEV IP4 IP6: addresses that are usable at once (no duplicate address detection).
bring_up() {
	{ echo 0 >"/proc/sys/net/ipv6/conf/$1/accept_dad"; } 2>/dev/null || true
	ip link set lo up
	ip addr add "$2/24" dev "$1"
	ip addr add "$3/64" dev "$1" nodad 2>/dev/null || true # there may be no IPv6
	ip link set "$1" up
}

is_up() { on "$1" ip link show "$(netdev "$1")" | has LOWER_UP; }

netdev() { local -n dev=NETDEV_$1 && echo "$dev"; }

# on SIDE COMMAND...: runs a command of the machine (not under anyrdma) on that side, as the script's user.
on() {
	local -n prefix=ON_$1
	shift
	"${prefix[@]}" "$@"
}

# ---- who runs the programs ----------------------------------------------------------------------------

# as_ordinary_user: from now on programs have no capability, no environment to speak of, and stand in a
# directory they cannot write to; when the test is root, they are user 65534.
as_ordinary_user() {
	local nobody=(--reuid=65534 --regid=65534 --clear-groups)
	local powerless=(--bounding-set=-all --inh-caps=-all)
	mkdir -p "$TMP/sealed"
	chmod 711 "$TMP"
	chmod 555 "$TMP/sealed"
	cd "$TMP/sealed"
	if setpriv "${nobody[@]}" true 2>/dev/null; then
		IDENTITY=(setpriv "${nobody[@]}" "${powerless[@]}")
	elif setpriv "${powerless[@]}" true 2>/dev/null; then
		IDENTITY=(setpriv "${powerless[@]}")
	fi
	if ! "${IDENTITY[@]}" test -x "$ANYRDMA" 2>/dev/null; then
		# The build tree may lie where only its owner can go.
		mkdir "$TMP/copy"
		cp -r "$ANYRDMA_BUILD/bin" "$ANYRDMA_BUILD/lib" "$ANYRDMA_BUILD/libexec" "$TMP/copy"
		chmod -R go+rX "$TMP/copy"
		ANYRDMA=$TMP/copy/bin/anyrdma
	fi
	RUN_DIR=/dev/shm/anyrdma-$("${IDENTITY[@]}" id -u)
	# Root of a user namespace finds the real root's there, and takes the next place, as programs do (host/rundir.c).
	[ ! -e "$RUN_DIR" ] || "${IDENTITY[@]}" test -O "$RUN_DIR" || RUN_DIR=/tmp/${RUN_DIR##*/}
	IDENTITY+=(env -i "PATH=$PATH" ${ANYRDMA_PORT:+"ANYRDMA_PORT=$ANYRDMA_PORT"})
}

# ---- programs -----------------------------------------------------------------------------------------

# become SIDE PROGRAM ARGS...: turns this (sub)shell into the program, so that its process id is the
# program's; it dies with the script.
become() {
	local -n prefix=ON_$1 host=HOST_$1
	if [ "$1" = "$GUEST" ]; then
		shift
		exec "${prefix[@]}" "$@"
	fi
	shift
	exec "${prefix[@]}" "${IDENTITY[@]}" setpriv --pdeathsig KILL "${SANITIZER[@]}" "$ANYRDMA" run "${host[@]}" "$@"
}

# start NAME SIDE PROGRAM ARGS...: runs it in the background; its output is $TMP/NAME.
start() {
	local name=$1
	shift
	become "$@" >"$TMP/$name" 2>&1 </dev/null &
	PID[$name]=$!
}

# finish NAME [SECONDS]: waits for it and returns its exit status; kills it at the deadline. Without one of its own that is when
# nothing has moved for $PATIENCE seconds: who moves is slow, on a busy machine, but not stuck.
finish() {
	local pid=${PID[$1]} patience=${2:-$PATIENCE} status=0 moved='' before
	until until_true "$patience" gone "$pid"; do
		before=$moved moved=$(traffic)
		[ $# -gt 1 ] || [ "$moved" = "$before" ] || continue
		say "(still running after $patience s; killed)" >>"$TMP/$1"
		kill -9 "$pid" 2>/dev/null || true
		break
	done
	wait "$pid" 2>/dev/null || status=$?
	unset "PID[$1]"
	[ "$status" -eq 0 ] || say "(exit status $status)" >>"$TMP/$1"
	return "$status"
}

# kill_hard NAME...: kill -9 of programs in the middle of their work, all at once: none ends because another has.
kill_hard() {
	local name pids=()
	for name; do
		pids+=("${PID[$name]}")
		unset "PID[$name]"
	done
	kill -9 "${pids[@]}"
	wait "${pids[@]}" 2>/dev/null || true
}

# run SIDE PROGRAM ARGS...: runs it to its end; its output is ours.
run() { (become "$@"); }

# registry: every file in the run directory of the world's two namespaces, but those that processes share.
registry() { { find "${NAMESPACES[@]/#/$RUN_DIR/net-}" ! -type d ! -name "group-*" ! -name "processes-*" 2>/dev/null || true; } | sort -u; }

# nothing_left: the registry has no file that it had not when $TMP/registry_before was written.
nothing_left() {
	registry >"$TMP/registry_after"
	if [ -z "$(comm -13 "$TMP/registry_before" "$TMP/registry_after")" ]; then
		say "ok    nothing is left in the registry"
	else
		fail "files are left in the registry" "$TMP/registry_before" "$TMP/registry_after"
	fi
}

# ---- pairs --------------------------------------------------------------------------------------------

# gid SIDE FAMILY: the index of the side's IPv4 (4) or IPv6 (6) address in its device's GID table.
gid() {
	local -n address=IP$2_$1
	local text=$address
	[[ $address = *:* ]] || text=::ffff:$address
	sed -n "s/.*GID\[ *\([0-9]*\)\]:[[:space:]]*$text\(,.*\)\?$/\1/p" "$TMP/devinfo_$1" | head -n 1
}

# device SIDE: the device on the side's interface, or of its host; where it is ours, of the kind that talks to the guest's, or of the one that
# ANYRDMA_DEVICES says, or RoCE.
device() {
	local kind=${ANYRDMA_DEVICES:-roce}
	[ "${GUEST_RDMA:-}" != siw ] || kind=iwarp
	[ "${#HOST_A[@]}" -eq 0 ] || kind=ib0
	case $1,$kind in
	"$GUEST",*) echo "${GUEST_RDMA}0" ;;
	*,ib0) echo ib0 ;;
	*) echo "${kind}_$(netdev "$1")" ;;
	esac
}

# learn_gids: asks both sides for their tables, once.
learn_gids() {
	local side family
	for side in A B; do
		run "$side" ibv_devinfo -v -d "$(device "$side")" >"$TMP/devinfo_$side" 2>&1 ||
			fail "ibv_devinfo -v -d $(device "$side")" "$TMP/devinfo_$side"
		for family in 4 6; do
			GID["$side $family"]=$([[ $WORLD = fabric* ]] && echo 0 || gid "$side" "$family")
			[ -n "${GID["$side $family"]}" ] || fail "no GID for IPv$family on side $side" "$TMP/devinfo_$side"
		done
	done
}

# active_mtu: the port's, in bytes; what a UD message may have.
active_mtu() { awk '$1 == "active_mtu:" { print $2; exit }' "$TMP/devinfo_A"; }

# by_gid SIDE FAMILY OPTION: how a side says its address: the GID of that family. On a fabric the LID is enough; the second family
# is the same with a GRH.
by_gid() { [[ $WORLD,$2 = fabric*,4 ]] || echo "$3" "${GID["$1 $2"]}"; }

# addressed FAMILY: the same in words.
addressed() {
	case $WORLD,$1 in
	fabric*,4) echo "by LID" ;;
	fabric*,6) echo "with GRH" ;;
	*) echo "IPv$1" ;;
	esac
}

# start_pair NAME FAMILY PROGRAM ARGS...: the server on A, and once it listens the client on B. Leaves
# programs NAME.server and NAME.client. They find each other by IPv4 whatever the GIDs are: these programs
# listen on the first address that getaddrinfo gives.
start_pair() {
	local name=$1 family=$2 program=$3 port=$NEXT_PORT gid_option=-x host=$IP4_A by_a by_b
	shift 3
	NEXT_PORT=$((NEXT_PORT + 1))
	[ "${#GID[@]}" -gt 0 ] || learn_gids
	[ "${program#ibv_}" = "$program" ] || gid_option=-g
	# perftest's client asks its device for as many READs at once as the server's has; rxe has 128, we have 16.
	[ -z "$GUEST" ] || [[ $program != ib_@(read|atomic)_* ]] || set -- -o 16 "$@"
	# A guest on a busy machine may say nothing for longer than perftest's usual half second of retries.
	[ -z "$GUEST" ] || [[ $program != ib_* ]] || set -- -u 16 "$@"
	read -ra by_a < <(by_gid A "$family" $gid_option) || true
	read -ra by_b < <(by_gid B "$family" $gid_option) || true
	start "$name.server" A "$program" -d "$(device A)" "${by_a[@]}" -p "$port" "$@"
	until_true "$PATIENCE" listens "${PID[$name.server]}" "$port" || true
	start "$name.client" B "$program" -d "$(device B)" "${by_b[@]}" -p "$port" "$@" "$host"
}

# finish_pair NAME LABEL: both end well, neither complains, and the client has a result.
finish_pair() {
	local status=0
	finish "$1.client" || status=1
	finish "$1.server" || status=1
	if [ "$status" -eq 0 ] && says "$1.client" "$RESULT" && content "$1.client" && content "$1.server"; then
		say "ok    $2"
	else
		fail "$2 ($WORLD)" "$TMP/$1.server" "$TMP/$1.client"
	fi
}

# A line of results, of a pingpong or of perftest. Only clients must have one: the target of READs and atomics
# has nothing to report.
RESULT='^[0-9]+ bytes in|^ *[0-9]+ +[0-9]+ +[0-9.]+'

# content NAME: the program complains of nothing; some end with status 0 whatever they saw.
COMPLAINTS='invalid data|Failed status|Completion with error|Sanitizer'
content() { ! says "$1" "$COMPLAINTS"; }

# pair FAMILY PROGRAM ARGS...: one run, start to verdict.
pair() {
	start_pair pair "$@"
	finish_pair pair "$(addressed "$1") ${*:2}"
}

# ---- pairs that connect by address ---------------------------------------------------------------------

# serve NAME PROGRAM ARGS...: a server on A that listens on RDMA port $PORT.
serve() {
	local name=$1
	shift
	PORT=$NEXT_PORT NEXT_PORT=$((NEXT_PORT + 1))
	start "$name" A "$@" -p "$PORT"
	until_true "$PATIENCE" listens_rdma "${PID[$name]}" "$PORT" || true
}

# said NAME PATTERN: an empty pattern is always said.
said() { [ -z "$2" ] || says "$1" "$2"; }

# verdict LABEL CLIENT_SAYS SERVER_SAYS: both ended well and said so.
verdict() {
	local status=0
	finish client || status=1
	finish server || status=1
	if [ "$status" -eq 0 ] && said client "$2" && said server "$3" && content client && content server; then
		say "ok    $1"
	else
		fail "$1 ($WORLD)" "$TMP/server" "$TMP/client"
	fi
}

# address FAMILY SIDE
address() { local -n addr=IP$1_$2 && echo "$addr"; }
