# shellcheck shell=bash
# SPDX-License-Identifier: MIT
# A side of a world that is another machine: a guest with Linux's own RoCE (rdma_rxe), or iWARP (siw), on its only interface. Sourced by
# tests/clients/lib.sh, whose functions then reach into the guest: "on SIDE" and "start NAME SIDE" run a program
# there, as Debian made it and on Linux's device, and killing the process that stands for it here kills it there.
#
#   rxe-calls-MTU     the guest is side B, the clients are the kernel's
#   rxe-serves-MTU    the guest is side A, the servers are the kernel's
#   rxe-lossy-MTU     as rxe-calls; lossy_wire is between the two
#   siw-calls-MTU, siw-serves-MTU   the same with iWARP; Debian's kernel has no siw, so GUEST_KIND is uml there
#
# GUEST_KIND chooses Debian's kernel in QEMU (qemu) or User Mode Linux (uml).
# shellcheck disable=SC2034,SC2154

INTEROP=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
GUEST_KIND=${GUEST_KIND:-qemu}
[ "$GUEST_RDMA" = rxe ] || GUEST_KIND=uml
GUEST_TOOLS=$ANYRDMA_BUILD/tests/interop
PATIENCE=$((PATIENCE * 4))
RESULT="$RESULT|^ *[0-9]+ +[0-9]+ +inf" # perftest does not always understand a guest's clock
GUEST_MAC=02:00:00:77:00:02 HOST_MAC=02:00:00:77:00:01
export ANYRDMA_LOG=${ANYRDMA_LOG:-info} # what our ends counted
COMPLAINTS="$COMPLAINTS| (bad_icrc|bad_length|dropped|mads_dropped|wrong_peer)="
COUNTED= # one of our ends has said what it counted
GUEST_NETWORK=() # enters the namespace of the guest's TAP interface, when it is not ours

# make_guest: sees to it that the guest's files are there; $GUEST_FOLDER is where.
make_guest() {
	[ -w /dev/net/tun ] || skip "needs /dev/net/tun"
	[ -n "${GUEST_FOLDER:-}" ] || GUEST_FOLDER=$("$INTEROP/make_guest" "$GUEST_KIND") || skip "the guest cannot be made"
	export GUEST_FOLDER
}

# with_guest ROLE-MTU: boots the guest and gives it its side.
with_guest() {
	local role=${1%-*} mtu=${1#*-}
	[ "$role" != lossy ] || second_namespace
	GUEST_NETWORK=("${ON_B[@]}")
	NETDEV_A=va NETDEV_B=eth0
	IP4_A=10.77.0.1 IP4_B=10.77.0.2 IP6_A=fd77::1 IP6_B=fd77::2
	"$role"_wire "$mtu"
	initramfs >"$TMP/initramfs"
	boot "ip4=$IP4_B/24 ip6=$IP6_B/64 rdma=$GUEST_RDMA mtu=$mtu"
	rm -rf "$TMP/initramfs" "$TMP/tree" # 20 MB that a killed test would leave
	GUEST=B ON_B=(setpriv --pdeathsig KILL "$GUEST_TOOLS/guest_run" "$IP4_B")
	if [ "$GUEST_KIND" = uml ]; then
		keep_awake &
		PID[keep_awake]=$!
	fi
	until_true 10 on B true 2>/dev/null || fail "the guest does not answer" "$TMP/guest"
	# The kernel's verbs give a neighbour one second to answer: on a busy machine they had better met before.
	until_true 10 on B ping -c 1 -W 5 "$IP6_A" >"$TMP/ping" || fail "no IPv6 to the guest" "$TMP/ping"
	[ "$role" != serves ] || swap_sides
}

# calls_wire MTU: the guest's TAP interface is our end of the wire, which loses nothing.
calls_wire() {
	GUEST_TAP=va
	ip tuntap add va mode tap
	ip link set va mtu "$1" txqueuelen 10000
	# User Mode Linux takes no packets that the card would still have to cut, or sum up.
	[ "$GUEST_RDMA" = rxe ] || ethtool -K va tso off gso off gro off sg off tx off >/dev/null 2>&1 || true
	bring_up va "$IP4_A" "$IP6_A"
}

serves_wire() { calls_wire "$@"; }

# lossy_wire MTU ARGS...: the guest's TAP interface and the wire's far end are bridged in a namespace of their own.
lossy_wire() {
	local bridge=("${GUEST_NETWORK[@]}" ip link)
	start_wire "${@:2}"
	if [ -z "${GUEST_TAP:-}" ]; then
		GUEST_TAP=vg
		"${bridge[@]}" add br0 mtu "$1" type bridge && "${bridge[@]}" set br0 up || skip "cannot make a bridge"
		"${GUEST_NETWORK[@]}" ip tuntap add vg mode tap
		"${bridge[@]}" set vg mtu "$1" txqueuelen 10000 master br0 up
	fi
	"${bridge[@]}" set vb mtu "$1" txqueuelen 10000 master br0 up
	ip link set va address "$HOST_MAC" mtu "$1" txqueuelen 10000
	bring_up va 10.77.0.1 fd77::1
}

# initramfs: Debian's part out of the cache, and behind it what is ours, anyrdma too: archives add up.
initramfs() {
	local tree=$TMP/tree isal
	install -D -t "$tree" "$INTEROP/init"
	install -D -t "$tree/usr/bin" "$GUEST_TOOLS"/{agent,across} "$ANYRDMA"
	isal=$(ldd "$ANYRDMA_BUILD/lib/anyrdma/libibverbs.so.1" | sed -n 's/.*libisal.*=> \([^ ]*\).*/\1/p')
	install -D "$isal" "$tree/usr${isal#/usr}"
	cp -dR "$ANYRDMA_BUILD/lib/anyrdma" "$tree/usr/lib" # not the owner: it may be nobody in a user namespace
	cat "$GUEST_FOLDER/root.cpio"
	(cd "$tree" && find . | cpio --quiet -o -H newc -R 0:0)
}

# boot COMMAND_LINE: returns when the guest is up; its console is $TMP/guest.
boot() {
	local how
	for how in $(ways_to_boot); do
		"boot_${how%-*}" "$1" "${how#*-}" >"$TMP/guest" 2>&1 </dev/null &
		PID[guest]=$!
		until_true 120 guest_settled || true # it may hang: the next way, then
		! says guest 'guest up after' || return 0
		finish guest 0 || true
		say "$how: no guest: $(tail -n 3 "$TMP/guest")"
	done
	skip "the guest does not start"
}

guest_settled() { says guest 'guest up after' || gone "${PID[guest]}"; }

# ways_to_boot: the best first. /dev/kvm alone does not say that the processor can virtualise.
ways_to_boot() {
	[ "$GUEST_KIND" = uml ] && echo uml && return
	! [ -w /dev/kvm ] || ! grep -qE '^flags.* (vmx|svm)( |$)' /proc/cpuinfo || echo qemu-kvm
	echo qemu-tcg
}

boot_qemu() {
	exec "${GUEST_NETWORK[@]}" setpriv --pdeathsig KILL qemu-system-x86_64 -accel "$2" -M q35 -cpu max -smp 2 -m 512 \
		-nodefaults -no-reboot -display none -serial stdio \
		-kernel "$GUEST_FOLDER/kernel" -initrd "$TMP/initramfs" \
		-append "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off $1" \
		-netdev tap,id=wire,ifname="$GUEST_TAP",script=no,downscript=no \
		-device virtio-net-pci,netdev=wire,mac=$GUEST_MAC,romfile=
}

# Each process of this guest is one of ours, and the one that runs outlives the kernel: a process namespace ends it.
boot_uml() {
	mkdir "$TMP/uml"
	exec "${GUEST_NETWORK[@]}" setpriv --pdeathsig KILL unshare -p -f --kill-child -- "$GUEST_FOLDER/kernel" mem=512M \
		initrd="$TMP/initramfs" uml_dir="$TMP/uml/" umid=guest con=null con0=null,fd:1 ssl=null \
		"vec0:transport=tap,ifname=$GUEST_TAP,mac=$GUEST_MAC,depth=128,mtu=${1##*mtu=}" quiet "$1"
}

# keep_awake: now and then User Mode Linux does not notice a packet before the next one comes. So one comes.
keep_awake() {
	while sleep 0.1 && ! gone $$; do
		echo >"/dev/udp/$IP4_B/9" || true
	done 2>/dev/null
}

# swap_sides: what was A is B; so a script can run the same pairs the other way round.
swap_sides() {
	local on=("${ON_A[@]}") name
	ON_A=("${ON_B[@]}") ON_B=("${on[@]}")
	for name in NETDEV IP4 IP6; do
		local -n a=${name}_A b=${name}_B
		local was=$a
		a=$b b=$was
		unset -n a b
	done
	GUEST=$([ "$GUEST" = A ] && echo B || echo A)
	GID=()
}

# guest_listens_rdma PORT: somebody in the guest listens on the RDMA port.
guest_listens_rdma() {
	on "$GUEST" rdma resource show cm_id | has -E "state LISTEN .* src-addr [^ ]*:$1( |$)"
}

# note_counters, counted NAME: how much rxe's counter has grown since it was noted.
note_counters() { guest_counters >"$TMP/noted"; }

guest_counters() { on "$GUEST" sh -c 'cd /sys/class/infiniband/rxe0/ports/1/hw_counters && grep "" *' | tr : ' '; }

counted() {
	guest_counters |
		awk -v name="$1" 'NR == FNR { was[$1] = $2; next } $1 == name { print $2 - was[name] }' "$TMP/noted" -
}

# content NAME: as lib.sh has it; and where the wire loses nothing, our end counted no gap either. rxe refuses as out of
# sequence what is behind a request that it had no receive for (RNR).
content() {
	note_counted "$1"
	! says "$1" "$COMPLAINTS" || return
	[[ $WORLD == *lossy* ]] || awk '/ counters: / { for (i = 1; i <= NF; i++) { split($i, a, "="); n[a[1]] += a[2] } }
		END { exit n["out_of_sequence"] + n["naks_sent"] > 0 || n["naks_received"] > n["rnr_received"] }' "$TMP/$1"
}

# note_counted NAME: no complaint means something only where one would have been heard.
note_counted() { ! says "$1" ' counters: ' || COUNTED=1; }

# sequence_kept: the same of rxe, for the whole test; siw has TCP for that.
sequence_kept() {
	[ -n "$COUNTED" ] || fail "none of our ends said what it counted (ANYRDMA_LOG=$ANYRDMA_LOG)"
	[[ $WORLD == rxe-* && $WORLD != *lossy* ]] || return 0
	guest_counters >"$TMP/counters"
	awk '{ n[$1] = $2 } END { exit n["rcvd_seq_err"] > 0 || n["out_of_seq_request"] > n["send_rnr_err"] }' "$TMP/counters" ||
		fail "rxe saw gaps in what we sent" "$TMP/counters"
}
