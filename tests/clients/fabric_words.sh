# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# fabric_words.sh: OpenSM and the diagnostics, as Debian packages them, as an ordinary user on the hosts of a fabric. Behind lib.sh.

OSM=$TMP/osm # where OpenSM writes; an ordinary user cannot where it would

# on_a_fabric "$@": enters the world, as an ordinary user; the script's own arguments are for running it again.
on_a_fabric() {
	local program
	for program in opensm osmtest ibnetdiscover saquery; do
		[ -n "$(command -v $program || command -v /usr/sbin/$program)" ] || skip "needs opensm and infiniband-diags"
	done
	enter loopback "$@"
	as_ordinary_user
	PATH=$PATH:/usr/sbin
	mkdir -m 777 "$OSM"
}

fabric() { "${IDENTITY[@]}" "$ANYRDMA" fabric "$@"; }

# up TOPOLOGY: another fabric in place of the one that is there.
up() {
	fabric down >/dev/null 2>&1 || true
	fabric up --quiet --sm=off "$@" >"$TMP/up" 2>&1 || fail "fabric up $*" "$TMP/up"
}

# at HOST PROGRAM ARGS...: its output is $TMP/out; its status is ours.
at() {
	local host=$1
	shift
	run A --host "$host" timeout "$PATIENCE" env -C "$OSM" OSM_TMP_DIR="$OSM" OSM_CACHE_DIR="$OSM" "$@" >"$TMP/out" 2>&1
}

# well LABEL PATTERN HOST PROGRAM ARGS...: ends well, and a line of its output matches.
well() {
	local label=$1 pattern=$2
	shift 2
	if at "$@" && says out "$pattern"; then say "ok    $label"; else fail "$label: $*" "$TMP/out"; fi
}

# refused LABEL PATTERN HOST PROGRAM ARGS...: does not end well, and says why.
refused() {
	local label=$1 pattern=$2
	shift 2
	if ! at "$@" && says out "$pattern"; then say "ok    $label"; else fail "$label: $*" "$TMP/out"; fi
}

# sweep ARGS...: one run of OpenSM brings all ports up, and complains of nothing. From node1, or the host FROM.
sweep() {
	rm -rf "${OSM:?}"/*
	at "${FROM:-node1}" opensm -o -e -f "$OSM/log" "$@" || return 1
	grep -q 'SUBNET UP' "$OSM/log" && ! grep -q ERR "$OSM/log" && all_active
}

all_active() { fabric status | grep -Eq '^Ports with a cable: [0-9]+ ACTIVE\.$'; }

# launch_sm HOST ARGS...: OpenSM as long as the script likes, with files of its own; its log is $OSM/log_HOST.
launch_sm() {
	local host=$1
	shift
	rm -rf "$OSM/of_$host"
	mkdir -m 777 "$OSM/of_$host"
	start "sm_$host" A --host "$host" env OSM_TMP_DIR="$OSM/of_$host" OSM_CACHE_DIR="$OSM/of_$host" opensm -e -f "$OSM/log_$host" "$@"
}

# start_sm HOST ARGS...: all ports are ACTIVE when this returns.
start_sm() {
	launch_sm "$@"
	until_true "$PATIENCE" all_active || fail "OpenSM does not bring the ports up" "$TMP/sm_$1" "$OSM/log_$1"
}

# stop NAME: the end of a program that would go on.
stop() {
	kill "${PID[$1]}"
	wait "${PID[$1]}" 2>/dev/null || true
	unset "PID[$1]"
}

# of HOST: its LID, its GUID.
lid_of() { run A --host "$1" ibstat | awk '/Base lid:/ { print $3 }'; }
guid_of() { run A --host "$1" ibstat -p; }

pinged() { at node2 ibping -c 1 "$1" && says out ' 0% packet loss'; }

has_master() { at node2 sminfo && says out SMINFO_MASTER; }

fabric_pid() { cat "$RUN_DIR/net-${NAMESPACES[0]}/fabric-default/lock"; }
