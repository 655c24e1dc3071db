#!/bin/bash
# SPDX-License-Identifier: MIT
# fallback.sh: two programs on one host where something is forbidden that shared memory needs, or that older kernels have not. They
# work all the same, by the next way down, and say why at log level info; what each queue pair counted tells which way that was.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter loopback "$@"
export ANYRDMA_LOG=info
FORBID=$ANYRDMA_BUILD/tests/clients/forbid
"$FORBID" memfd_create -- true || skip "needs seccomp filters"

# took WAY: what the client said of its queue pair: over UDP; by packets through memory (ring); by its own hands (direct).
took() {
	case $1 in
	wire) says pair.client 'to QP 0x[0-9a-f]+ over UDP' ;;
	ring) says pair.client 'to QP 0x[0-9a-f]+ through shared memory' && ! says pair.client ' direct=' ;;
	direct) says pair.client ' direct=' ;;
	esac
}

# goes WAY SIDE REASON LABEL [PROGRAM]: WRITEs of 64 KiB take that way, and the program on that side (server, client) said why not another.
goes() {
	start_pair pair 4 "${5:-ib_write_bw}" -F -n 1000
	finish_pair pair "$4"
	took "$1" || fail "$4: not by $1" "$TMP/pair.server" "$TMP/pair.client"
	said "pair.$2" "$3" || fail "$4: the $2 does not say '$3'" "$TMP/pair.$2"
	ON_A=() ON_B=()
}

goes direct client 'using shared memory$' "nothing is forbidden"

ON_A=("$FORBID" memfd_create --)
goes wire client 'shared memory unavailable \(it does not offer it\)' "the server may share no memory"
said pair.server 'shared memory unavailable: Operation not permitted' || fail "the server does not say why" "$TMP/pair.server"
ON_B=("$FORBID" memfd_create --)
goes wire client 'shared memory unavailable: Operation not permitted' "the client may share no memory"

ON_B=("$FORBID" process_vm_writev --)
goes ring client 'no access to its memory \(Operation not permitted\)' "the client may not look into others"

ON_B=(prlimit --fsize=1000000 --)
goes wire client 'shared memory unavailable \(this process may not make files of that length: raise .ulimit -f.\)' "the client may make no long files"

if unshare -p true 2>/dev/null; then
	ON_B=(unshare --pid --fork --kill-child --)
	goes ring client 'it is in another PID namespace' "the client is in a PID namespace of its own"
else
	say "SKIP  part: no PID namespaces"
fi

export ANYRDMA_LOCAL=map
# rping's server READs and WRITEs its client's memory, which by then has threads that would have to be held back.
ON_B=("$FORBID" userfaultfd --)
serve server rping -s -a "$IP4_A" -C 20 -S 60000 -V
start client B rping -c -a "$IP4_A" -p "$PORT" -C 20 -S 60000 -V
verdict "the client may not hold back its threads: its memory is copied" 'cannot map anything of it: other threads' ' direct='
ON_B=()
unset ANYRDMA_LOCAL

# Kernels without batches of packets, and without a program that picks the process a packet is for; on one side, and on both.
export ANYRDMA_LOCAL=off
for batches in UDP_SEGMENT UDP_GRO; do
	ON_B=("$FORBID" "$batches" --)
	reason=''
	[ "$batches" = UDP_GRO ] || reason='no UDP_SEGMENT here \(Protocol not available\): sending packets one by one'
	goes wire client "$reason" "the client's kernel has no $batches"
done
old=("$FORBID" UDP_SEGMENT UDP_GRO SO_ATTACH_REUSEPORT_CBPF --)
steering='cannot steer packets between processes \(Protocol not available\)'
ON_B=("${old[@]}")
goes wire client "$steering" "the client's kernel is an old one"
ON_A=("${old[@]}")
goes wire server "$steering" "the server's kernel is an old one"
ON_A=("${old[@]}") ON_B=("${old[@]}")
goes wire client "$steering" "both kernels are old ones"
unset ANYRDMA_LOCAL

# A program that only may be executed, not read, may not be looked into by others of its user (PR_SET_DUMPABLE). Nor by the sanitizers'
# runtime, which looks there for its options.
if [ -n "${SANITIZED:-}" ]; then
	done_testing
	exit
fi
cp "$(command -v ib_write_bw)" "$TMP/ib_write_bw"
chmod 111 "$TMP/ib_write_bw"
as_ordinary_user
IDENTITY+=(ANYRDMA_LOG=info)
GID=()
goes ring server 'no memory is exported' "both may not be looked into" "$TMP/ib_write_bw"
done_testing
