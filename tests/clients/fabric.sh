#!/bin/bash
# SPDX-License-Identifier: MIT
# fabric.sh: `anyrdma fabric`, as an ordinary user: a subnet comes up, OpenSM manages it, a cable is cut, packets are captured,
# and what is wrong is told in a sentence.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
for program in opensm ibnetdiscover ibtracert rping tshark; do
	[ -n "$(command -v $program || command -v /usr/sbin/$program)" ] || skip "needs opensm, infiniband-diags, rdmacm-utils and tshark"
done
enter loopback "$@"
as_ordinary_user
PATH=$PATH:/usr/sbin
HOME_OF_FABRICS=$RUN_DIR/net-$(stat -Lc %i /proc/self/ns/net)
CHECKER=$HERE/../wire/icrc_check.py
FILES=$TMP/files # the ordinary user writes here
mkdir -m 777 "$FILES"

fabric() { "${IDENTITY[@]}" "${SANITIZER[@]}" timeout "$PATIENCE" "$ANYRDMA" fabric "$@"; }
at() { local host=$1 && shift && run A --host "$host" timeout "$PATIENCE" "$@"; }

# ok LABEL COMMAND...: ends well; what it says is $TMP/out.
ok() {
	local label=$1
	shift
	if "$@" >"$TMP/out" 2>&1; then say "ok    $label"; else fail "$label: $*" "$TMP/out"; fi
}

# tells LABEL PATTERN COMMAND...: says so, whatever its status.
tells() {
	local label=$1 pattern=$2
	shift 2
	"$@" >"$TMP/out" 2>&1 || true
	if grep -Eq -- "$pattern" "$TMP/out"; then say "ok    $label"; else fail "$label: no '$pattern' from: $*" "$TMP/out"; fi
}

up() { fabric up --quiet --sm=off "$@" >"$TMP/out" 2>&1 || fail "fabric up $*" "$TMP/out"; }
down() { fabric down >"$TMP/out" 2>&1 || fail "fabric down" "$TMP/out"; }
log_of() { echo "$HOME_OF_FABRICS"/fabric-"$1"/opensm/opensm.log; }

sentences() {
	local i
	tells "no fabric: what to do" "anyrdma fabric up. starts one" fabric status
	tells "no fabric: nor OpenSM on it" "anyrdma fabric up. starts one" fabric sm stop
	tells "no fabric: nor a host on it" "anyrdma fabric up. starts one" run A --host node1 true
	tells "nor devices" "no fabric is up, or several are" env ANYRDMA_HOST=node1 "$ANYRDMA" devices
	tells "and why there are none" "no devices: that host of a fabric" env ANYRDMA_HOST=node1 "$ANYRDMA" devices
	tells "no such topology" "for example: ring:6|at least three switches" fabric up ring:2
	tells "no such file" "No such file or directory; give a topology" fabric up /nowhere
	printf 'Switch 4 "S1"\n[1] "S2"[1]\n' >"$FILES/wrong"
	tells "a fault in a file names its line" "wrong, line 2: there is no node .S2." fabric up "$FILES/wrong"
	for i in {1..1100}; do echo "Switch 254 \"s$i\""; done >"$FILES/large"
	tells "a description of too many ports" "large, line 1029: node \"s1029\" cannot be added: all nodes" fabric up "$FILES/large"
	tells "a number that is none" "--mtu wants a number, and '2k'" fabric up --mtu 2k pair
	tells "nor is this one" "--seed wants a number, and '-1'" fabric up --seed -1 pair
	tells "adapters of a file have ports" "--ports-per-hca is for topologies" fabric up --ports-per-hca 2 "$FILES/wrong"
	printf 'width=8\nspeed=7\nextspeed=1\nCa 1 "a"\n[1] "b"[1]\nCa 1 "b"\n' >"$FILES/wide"
	up "$FILES/wide"
	tells "a wide link has its rate" 'rate:.*168 Gb/sec \(12X FDR\)' at a ibstatus
	down
	printf 'Switch 3 "S1"\n[1] "Hca1"[1]\n[2] "Hca2"[1]\n[3] "Hca3"[1]\nCa 1 "Hca1"\nCa 1 "Hca2"\nCa 1 "Hca3"\n' >"$FILES/documented"
	sed -n 's/^    @/@/p' "$HERE/../../docs/fabric.md" >>"$FILES/documented"
	ok "a description with each line of the tutorial" fabric up "$FILES/documented"
	tells "has what they say" 'node1 +ib1 +1 ' fabric hosts
	down
	printf 'Ca 1 "a"\n[1] "b"[1]\nCa 1 "b"\n@site "b" tcp:elsewhere:1\n' >"$FILES/sites"
	tells "sites are one machine yet" "@site has no effect yet: all nodes are on this machine" fabric up "$FILES/sites"
	down
	ok "all its options at once" fabric up --quiet --sm=off --mtu 2048 --speed EDR --seed 7 --ports-per-hca 1 --ip 10.9.0.0/16 pair
	tells "too many are no crash" "too many options" fabric up $(printf -- '--until-unused %.0s' {1..100}) --name other pair
	down
	up star:2
	tells "a second of the name is refused" "already up; .anyrdma fabric down. ends it" fabric up star:3
	tells "a name without --name ends no other" "fabric down takes no 'other'; --name NAME says" fabric down other
	tells "no such host" "there is no host 'node9'" run A --host node9 true
	tells "no such port" "S1 has ports \[1\] to \[2\]" fabric cut 'S1[3]'
	tells "nor one of several that is not named" "S1 has ports \[1\] to \[2\]" fabric cut S1
	tells "no such fault" "is no fault; for example: loss=1%" fabric inject 'S1[1]' slow
	tells "nor is there one of rates yet" "links with a rate are not there yet" fabric inject 'S1[1]' rate=10G
	tells "no such command" "there is no 'uup'" fabric uup
	tells "nor one for several machines yet" "fabric link: subnets across machines.* are not there yet" fabric link 'S1[9]' other:'S1[9]'
	tells "no such option" "^anyrdma: fabric up: unrecognized option '--speedy'" fabric up --speedy
	tells "a host without a name" "--host wants the name of a host" run A --host
	tells "nor for OpenSM" "opensm \[--host HOST\] \[-- OPTIONS\], or stop" fabric sm opensm --host
	tells "whose options follow two dashes" "opensm \[--host HOST\] \[-- OPTIONS\], or stop" fabric sm opensm -R ftree
	ok "another fabric beside it" fabric up --quiet --name other pair
	tells "which has a status of its own" "Fabric 'other'.* 2 hosts, 0 switches, 1 cable\." fabric status --name other
	tells "its name may stand in front" "Fabric 'other'" fabric --name=other status
	tells "or at the end" "^node1\[1\] - node2\[1\] is cut" fabric cut node1 --name other
	tells "but not be empty, and mean the first" "'' is no name for a fabric" fabric down --name ''
	tells "nor be missing" "map takes no '--name'" fabric map --svg="$FILES/map.svg" --name
	ok "and is ended by itself" fabric down --name other
	tells "the first is still up" "Fabric 'default'.* 2 hosts, 1 switch, 2 cables\." fabric status
	mkfifo -m 666 "$FILES/pipe"
	tells "a pipe is no file for a capture" "pipe is no regular file" fabric capture "$FILES/pipe"
	tells "nor a description" "pipe is no file of at most" fabric up --name other "$FILES/pipe"
	ok "and the fabric goes on" fabric status
	tells "of two cables one is none" "there is no node 'nonsense'" fabric cut 'S1[1]' 'nonsense[1]'
	tells "and the other is not cut" '2 cables\.$' fabric status
	tells "OpenSM does not start" "opensm has ended with status" fabric sm opensm --host=node2 -- --bogus
	ok "it does, on the host that is asked for" fabric sm opensm --host=node2
	tells "there" "Subnet manager on node2" fabric sm
	ok "it ends" fabric sm stop
	until_true 10 is_unmanaged || fail "IsSM stays" "$TMP/out"
	tells "it does not start, and ports that are ACTIVE hide it not" "opensm has ended with status" fabric sm opensm -- --bogus
	down
	between
	closed_streams
	until_true 10 nothing_there || fail "something is left in $HOME_OF_FABRICS"
	say "ok    and nothing is left behind"
}

# Coming up and ending take a moment in which there is a lock and nobody who answers.
between() {
	local dir=$HOME_OF_FABRICS/fabric-ending
	"${IDENTITY[@]}" mkdir "$dir"
	"${IDENTITY[@]}" flock "$dir/lock" sleep 1 &
	PID[ending]=$!
	until_true 10 test -e "$dir/lock" || fail "no lock"
	until_true 10 locked "$dir/lock" || fail "no lock is held"
	tells "a fabric that ends is waited for" "the fabric 'ending' has just ended" fabric status --name ending
	wait "${PID[ending]}"
	"${IDENTITY[@]}" flock "$dir/lock" sleep 1 &
	PID[ending]=$!
	until_true 10 locked "$dir/lock" || fail "no lock is held"
	ok "nor is it in the way of the next" fabric up --quiet --name ending pair
	ok "which is up" fabric down --name ending
	wait "${PID[ending]}"
	unset "PID[ending]"
}

locked() { ! flock -ns "$1" true; }

# A caller without standard streams: their numbers are given to the tool's own descriptors.
closed_streams() {
	ok "a fabric comes up without standard input" fabric up --quiet --name closed pair <&-
	ok "and answers" fabric status --name closed
	ok "and goes" fabric down --name closed
	fabric up --quiet --name closed pair <&- >&- 2>&- || fail "fabric up with all streams closed"
	ok "nor does it need the others" fabric down --name closed
}

nothing_there() { [ -z "$(find "$HOME_OF_FABRICS" -maxdepth 1 \( -name 'fabric-*' -o -name 'gone-*' \))" ]; }

# What a user of the tutorial does (docs/fabric.md).
tutorial() {
	progress
	ok "fat-tree:4 comes up, with a picture" fabric up --sm=off fat-tree:4
	has 'edge1 .* edge8' <"$TMP/out" || fail "no picture" "$TMP/out"
	drawn
	tells "ports wait for a subnet manager" '96 INIT' fabric status
	ok "a capture begins" fabric capture "$FILES/up.pcapng"
	ok "OpenSM brings it up" fabric sm opensm
	ok "its SA is asked" at node3 saquery NR
	connected
	ok "the capture ends" fabric capture stop
	tells "all ports are ACTIVE" '96 ACTIVE\.' fabric status
	tells "and who did it" 'Subnet manager on node1, port 1 \(LID 1\)' fabric status
	tells "a host has its files" 'rate:.*200 Gb/sec \(4X HDR\)' at node3 ibstatus
	tells "ibstatus knows the LID" 'base lid:[[:space:]]+0x[1-9a-f]' at node3 ibstatus
	reroute
	[ "$(grep -c ERR "$(log_of default)")" -eq 0 ] || fail "OpenSM complains" "$(log_of default)"
	say "ok    OpenSM complains of nothing"
	discovered
	ok "opensm is ended" fabric sm stop
	until_true 10 is_unmanaged || fail "IsSM stays" "$TMP/out"
	say "ok    and IsSM with it"
	by_hand
	nobody_works
	down
}

# Two programs that connect by address, and leave.
connected() {
	start server A --host node16 rping -s -a 0.0.0.0 -C 3
	until_true "$PATIENCE" listens_rdma "${PID[server]}" 7174 || fail "rping does not listen" "$TMP/server"
	ok "a connection is made" at node3 rping -c -a 10.47.0.16 -C 3
	finish server || fail "rping" "$TMP/server"
}

# The command that the tutorial has for an OpenSM of one's own.
by_hand() {
	local command
	command=$(sed -n 's/^    anyrdma run --host node2 \(env OSM_.*\)/\1/p' "$HERE/../../docs/fabric.md")
	ok "OpenSM by hand, as the tutorial has it" at node2 bash -c "cd '$FILES' && $command -o"
	has 'SUBNET UP' <"$FILES/opensm2.log" || fail "its log does not say SUBNET UP" "$TMP/out" "$FILES/opensm2.log"
	until_true 10 is_unmanaged || fail "IsSM stays" "$TMP/out"
}

is_unmanaged() { fabric status >"$TMP/out" 2>&1 && has 'No subnet manager' <"$TMP/out"; }

path_to_node16() { at node1 ibtracert 1 "$(at node16 ibstat | awk '/Base lid/ { print $3 }')"; }
avoids_agg() { path_to_node16 >"$TMP/out" 2>&1 && ! has "\"$1\"" <"$TMP/out" && has '"node16"' <"$TMP/out"; }

# What is being done is told to a terminal, on one line of which nothing stays; elsewhere it is not.
progress() {
	local up=("${IDENTITY[@]}" "${SANITIZER[@]}" "$ANYRDMA" fabric up --name shown ring:6)
	python3 -c 'import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))' "${up[@]}" </dev/null >"$TMP/out" 2>&1 ||
		fail "fabric up in a terminal" "$TMP/out"
	has $'^reading ring:6 \\.\\.\\.\r\e\\[K12 nodes \\.\\.\\.\r\e\\[K' <"$TMP/out" && has '12 cables' <"$TMP/out" || fail "no progress in a terminal" "$TMP/out"
	fabric down --name shown >"$TMP/out" 2>&1 || fail "fabric down" "$TMP/out"
	ok "a terminal shows what is being done" "${up[@]}"
	! has 'nodes \.\.\.' <"$TMP/out" || fail "so does what is none" "$TMP/out"
	ok "and nothing else does" fabric down --name shown
}

# The picture as a file.
drawn() {
	ok "a picture is drawn" fabric map --svg="$FILES/map.svg"
	python3 - "$FILES/map.svg" <<-'END' >"$TMP/out" 2>&1 || fail "the picture" "$TMP/out"
		import sys, xml.etree.ElementTree as tree
		shapes = [e.tag.split("}")[1] for e in tree.parse(sys.argv[1]).getroot().iter()]
		assert (shapes.count("circle"), shapes.count("line")) == (16, 48), shapes
	END
	say "ok    with all hosts and cables"
	tells "one that cannot be written" "/nowhere/map.svg cannot be written: No such file" fabric map --svg=/nowhere/map.svg
	tells "an option that there is not" "no option '--png'; --svg=FILE" fabric map --png
}

# The cable that the path takes is cut; OpenSM finds another one.
reroute() {
	local agg
	path_to_node16 >"$TMP/path" 2>&1 || fail "ibtracert" "$TMP/path"
	agg=$(grep -o '"agg[12]"' "$TMP/path" | tr -d '"')
	ok "a cable is cut" fabric cut "edge1[${agg#agg}]"
	until_true "$PATIENCE" avoids_agg "$agg" || fail "OpenSM does not reroute" "$TMP/path" "$TMP/out" "$(log_of default)"
	say "ok    OpenSM finds another path"
	ok "and mended" fabric mend "edge1[${agg#agg}]"
	until_true "$PATIENCE" all_active || fail "the mended cable is not used" "$TMP/out"
	say "ok    which it takes into use"
}

all_active() { fabric status >"$TMP/out" 2>&1 && has '96 ACTIVE\.' <"$TMP/out"; }

# What ibnetdiscover finds is the description, and makes the same fabric again.
discovered() {
	at node2 ibnetdiscover >"$FILES/found" 2>"$TMP/out" || fail "ibnetdiscover" "$TMP/out"
	fabric topology | grep -v '^@' | sort >"$TMP/said"
	up --name again "$FILES/found"
	fabric topology --name again | grep -v '^@' | sort >"$TMP/again"
	fabric down --name again
	cmp -s "$TMP/said" "$TMP/again" || fail "another fabric came of it" "$TMP/said" "$TMP/again"
	say "ok    what ibnetdiscover finds makes the same fabric, GUIDs and names included"
}

captured() {
	"$CHECKER" "$FILES/up.pcapng" >"$TMP/out" 2>&1 || fail "CRCs of the capture" "$TMP/out"
	say "ok    every packet of the bring-up has a right ICRC and VCRC"
	tshark -n --disable-protocol rpcordma -r "$FILES/up.pcapng" -V >"$TMP/dissected" 2>/dev/null
	! grep -Ei 'malformed|exception' "$TMP/dissected" >"$TMP/out" || fail "tshark complains" "$TMP/out"
	tshark -n --disable-protocol rpcordma -r "$FILES/up.pcapng" >"$TMP/summary" 2>/dev/null
	for word in 'SubnGet(NodeInfo)' 'SubnSet(PortInfo)' 'SubnSet(LinearForwardingTable)' 'SubnAdmGetTableResp(NodeRecord)' \
		'SubnAdmGet(PathRecord)' 'CM: ConnectRequest' 'CM: ConnectReply' 'CM: ReadyToUse' 'CM: DisconnectRequest' 'RC RDMA'; do
		has -F "$word" <"$TMP/summary" || fail "tshark sees no $word" "$TMP/summary"
	done
	tshark -n -r "$FILES/up.pcapng" -T fields -e frame.interface_name 2>/dev/null | has -F 'node1[1] - edge1[3]' ||
		fail "the links have no names"
	say "ok    tshark names its packets and links, and finds nothing malformed"
}

# fabricd sleeps when nothing happens.
nobody_works() {
	local process before after
	process=$(head -1 "$HOME_OF_FABRICS"/fabric-default/lock)
	before=$(awk '{ print $14 + $15 }' "/proc/$process/stat")
	sleep 1
	after=$(awk '{ print $14 + $15 }' "/proc/$process/stat")
	[ $((after - before)) -le 1 ] || fail "an idle fabric used $((after - before)) ticks in a second"
	say "ok    an idle fabric uses no processor"
}

# Whatever is sent to the console, others are served, and who waits for ever is hung up on.
hostile() {
	local socket
	up star:2
	socket=$(echo "$HOME_OF_FABRICS"/fabric-default/console)
	"${IDENTITY[@]}" python3 - "$socket" <<-'END' >"$TMP/out" 2>&1 || fail "a hostile client of the console" "$TMP/out"
		import os, random, socket, sys
		def client():
		    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
		    s.connect(sys.argv[1])
		    return s
		silent = [client() for _ in range(40)]          # more than are taken at a time
		s = client()                                    # the first of them make room
		s.sendall(b"status\0")
		s.shutdown(socket.SHUT_WR)
		if not s.recv(100).startswith(b"ok"):
		    sys.exit("silent clients keep others out")
		s.close()
		random.seed(1)
		for s in silent:
		    s.close()
		words = [b"map", b"cut", b"inject", b"capture", b"counters", b"sm", b"tree", b"S1[1]", b"S1[99999999999999]", b"[", b"]",
		         b"", b"\xff" * 300, b"loss=nan%", b"loss=-1", b"delay=1e300s", b"/nonexistent/x", b"svg", b"start", b"node1" * 40]
		for _ in range(300):
		    s = client()
		    try:
		        s.sendall(b"\0".join(random.choices([w for w in words if w != b"start"], k=random.randrange(8))) + b"\0")
		        s.shutdown(socket.SHUT_WR)
		        if random.random() < .8:
		            while s.recv(65536):
		                pass
		    except (BrokenPipeError, ConnectionResetError):
		        pass
		    s.close()
		s = client()
		try:
		    s.sendall(b"x" * 100000)                    # more than a request may have
		except (BrokenPipeError, ConnectionResetError):
		    pass
	END
	tells "hostile clients harm nobody" "Fabric 'default'" fabric status
	if [ "$("${IDENTITY[@]}" id -u)" -eq "$(id -u)" ]; then
		say "SKIP  part: only root can be another user"
	else
		python3 - "$socket" <<-'END' >"$TMP/out" 2>&1 || fail "another user is served" "$TMP/out"
			import socket, sys
			s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
			s.connect(sys.argv[1])
			try:
			    s.sendall(b"status\0")
			    s.shutdown(socket.SHUT_WR)
			    got = s.recv(100)
			except OSError:
			    got = b""
			sys.exit(1 if got else 0)
		END
		say "ok    another user, root even, is turned away"
	fi
	killed
}

# A killed fabric leaves its directory, which is no fabric, and the next one takes it.
killed() {
	kill -9 "$(head -1 "$HOME_OF_FABRICS"/fabric-default/lock)"
	until_true 10 is_down || fail "a killed fabric counts as up" "$TMP/out"
	up star:3
	tells "a killed fabric can be started again" '3 hosts' fabric status
	down
}

# Nobody can reach a fabric whose directory was removed: it ends.
removed() {
	local process
	up star:2
	process=$(head -1 "$HOME_OF_FABRICS"/fabric-default/lock)
	rm -r "$HOME_OF_FABRICS/fabric-default"
	until_true 10 gone "$process" || fail "a fabric without a directory lives on"
	say "ok    a fabric whose directory is removed ends"
}

# Its lock goes last.
is_down() { ! fabric status >"$TMP/out" 2>&1 && has "there is no fabric" <"$TMP/out"; }

for_scripts() {
	local status=0
	fabric run --sm=off ring:3 -- sh -c "'$ANYRDMA' fabric sm opensm -- -o && '$ANYRDMA' run --host node2 ibstat && exit 7" >"$TMP/out" 2>&1 ||
		status=$?
	[ "$status" -eq 7 ] && has 'State: Active' <"$TMP/out" || fail "fabric run: status $status" "$TMP/out"
	say "ok    fabric run brings one up for a program, and ends with its status"
	ok "under the name that is asked for" fabric run --name mine pair -- "$ANYRDMA" fabric status
	has "Fabric 'mine'" <"$TMP/out" || fail "another name" "$TMP/out"
	status=0
	"${IDENTITY[@]}" "${SANITIZER[@]}" "$ANYRDMA" fabric run --name mine pair -- \
		sh -c 'kill -TERM $PPID; exec sleep 60' >"$TMP/out" 2>&1 || status=$?
	[ "$status" -eq 143 ] || fail "fabric run, ended by a signal: status $status" "$TMP/out"
	until_true 10 nothing_there || fail "fabric run leaves its fabric behind"
	say "ok    and takes it along when it is ended"
	"${IDENTITY[@]}" "${SANITIZER[@]}" "$ANYRDMA" fabric run pair -- sh -c 'kill -KILL $PPID' >"$TMP/out" 2>&1 || true
	until_true 10 nothing_there || fail "fabric run, killed, leaves its fabric behind"
	say "ok    and when it is killed"
}

sentences
tutorial
captured
hostile
removed
for_scripts
done_testing
