#!/bin/bash
# SPDX-License-Identifier: MIT
# middleware.sh WORLD [iwarp|brief]: what stands between programs and verbs: UCX, libfabric, Open MPI over them; and fio, qperf, QEMU.
# On a fabric UCX, Open MPI over it on eight hosts and qperf connect by LID, libfabric by GID and by address, the others by the
# addresses of hosts; brief is one of each there.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter "$1" "$@"
export ANYRDMA_DEVICES=${2:-}
[ "$ANYRDMA_DEVICES" != brief ] || ANYRDMA_DEVICES=
ADDRESS_A=$IP4_A
[ "${#HOST_A[@]}" -eq 0 ] || ADDRESS_A=10.47.0.1 # the first host's; what speaks TCP meets at $IP4_A

# serve_tcp NAME PROGRAM ARGS...: a server on A; its peer finds it by TCP.
serve_tcp() {
	PORT=$NEXT_PORT NEXT_PORT=$((NEXT_PORT + 1))
	start "$1" A "${@:2}" "$PORT"
	until_true "$PATIENCE" listens "${PID[$1]}" "$PORT" || true
}

# ucx TRANSPORTS TEST ARGS...
ucx() {
	local transports=$1 test=$2
	shift 2
	UCX_TLS=$transports UCX_NET_DEVICES=$(device A):1 serve_tcp server ucx_perftest -t "$test" "$@" -p
	UCX_TLS=$transports UCX_NET_DEVICES=$(device B):1 start client B ucx_perftest -t "$test" "$@" -p "$PORT" "$IP4_A"
	verdict "UCX $transports: $test $*" 'Final:' ''
}

# uct TRANSPORT TEST ARGS...: UCX's transports by themselves.
uct() {
	serve_tcp server ucx_perftest -t "$2" -x "$1" -d "$(device A):1" -n 500 "${@:3}" -p
	start client B ucx_perftest -t "$2" -x "$1" -d "$(device B):1" -n 500 "${@:3}" -p "$PORT" "$IP4_A"
	verdict "UCX's transport $1: $2 ${*:3}" 'Final:' ''
}

# libfabric PROVIDER TYPE
libfabric() {
	local how=(-p "$1" -e "$2" -c -I 20)
	serve_tcp server fi_pingpong "${how[@]}" -d "$(device A)" -B
	start client B fi_pingpong "${how[@]}" -d "$(device B)" -P "$PORT" "$IP4_A"
	verdict "libfabric $1 $2, contents checked" '^1[km] ' ''
}

# by_address PROVIDER ADDRESS: libfabric's messages between addresses that are said.
by_address() {
	start server A "$TMP/fabric_echo" "$1" "$2" "$NEXT_PORT"
	until_true "$PATIENCE" says server listening || true
	start client B "$TMP/fabric_echo" "$1" "$2" "$NEXT_PORT" client
	NEXT_PORT=$((NEXT_PORT + 1))
	verdict "libfabric $1 by $2" 'bytes and back' 'bytes and back'
}

# by_addresses: reliable datagrams and connections by IP, connections by GID.
by_addresses() {
	cc -o "$TMP/fabric_echo" "$HERE/fabric_echo.c" -lfabric
	by_address 'verbs;ofi_rxm' "$ADDRESS_A"
	by_address verbs "$ADDRESS_A"
	by_address verbs "[$(run A ibv_devinfo -v | sed -n 's/.*GID\[ *0\]:[[:space:]]*//p')]:0xffff:0x13f:0" # P_Key, RDMA_PS_IB, scope
}

# by_rpma: librpma.
by_rpma() {
	cc -o "$TMP/rpma_talk" "$HERE/rpma_talk.c" -lrpma -libverbs
	start server A "$TMP/rpma_talk" "$ADDRESS_A" "$NEXT_PORT"
	until_true "$PATIENCE" listens_rdma "${PID[server]}" "$NEXT_PORT" || true
	start client B "$TMP/rpma_talk" "$ADDRESS_A" "$NEXT_PORT" client
	NEXT_PORT=$((NEXT_PORT + 1))
	verdict "librpma" 'there and back' 'there and back'
}

# no_ucx: it has no transport for iWARP, which it finds by looking at each device.
no_ucx() {
	start client A ucx_info -d
	finish client && says client "Memory domain: $(device A)" && ! says client verbs || fail "ucx_info ($WORLD)" "$TMP/client"
	say "ok    UCX leaves iWARP alone"
}

# Open MPI keeps its files by user number, which the root of a user namespace shares with the real one.
export OMPI_MCA_orte_tmpdir_base=$TMP

# mpi_by_libfabric: both processes on side A, through the address of its interface; libfabric leaves out the loopback.
mpi_by_libfabric() {
	FI_VERBS_IFACE=$(netdev A) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		start client A mpirun.openmpi --oversubscribe -n 2 --mca pml cm --mca mtl ofi --mca btl self \
		--mca mtl_ofi_provider_include 'verbs;ofi_rxm' -x FI_VERBS_IFACE "$TMP/mpi_ring"
	finish client && says client 'sum 100 of 100' && content client || fail "Open MPI over libfabric ($WORLD)" "$TMP/client"
	say "ok    Open MPI over libfabric"
}

# mpi TRANSPORTS: two processes of Open MPI, which are on one host for this test.
mpi() {
	UCX_TLS=self,$1 UCX_NET_DEVICES=$(device A):1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		start client A mpirun.openmpi --oversubscribe -n 2 --mca pml ucx --mca btl self --mca osc ucx \
		-x UCX_TLS -x UCX_NET_DEVICES "$TMP/mpi_ring"
	finish client && says client 'sum 100 of 100' && content client || fail "Open MPI over UCX $1 ($WORLD)" "$TMP/client"
	say "ok    Open MPI over UCX $1"
}

# mpi_on_hosts TRANSPORTS: eight processes, each on a host of its own.
mpi_on_hosts() {
	UCX_TLS=self,$1 UCX_NET_DEVICES=ib0:1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
		start client A mpirun.openmpi --oversubscribe -n 8 --mca pml ucx --mca btl self --mca osc ucx \
		-x UCX_TLS -x UCX_NET_DEVICES "$ANYRDMA" run --host auto bash -c 'echo "on $ANYRDMA_HOST"; exec "$0"' "$TMP/mpi_ring"
	finish client && says client 'sum 400 of 400' && content client || fail "Open MPI over UCX $1 on eight hosts ($WORLD)" "$TMP/client"
	[ "$(grep -o 'on node[1-8]$' "$TMP/client" | sort -u | wc -l)" -eq 8 ] || fail "not on eight hosts" "$TMP/client"
	say "ok    Open MPI over UCX $1, on eight hosts"
}

# blocks VERB: fio sends with no retries when nothing is posted, so its receiver posts for all 128 of them before it is asked.
blocks() {
	local how=(--ioengine=rdma --bs=64k --size=8m --port="$NEXT_PORT")
	start server A fio --name=server --rw=read --iodepth=128 "${how[@]}"
	until_true "$PATIENCE" says server 'waiting for connection' || true
	start client B fio --name=client --rw=write --iodepth=2 "${how[@]}" --hostname="$ADDRESS_A" --verb="$1"
	NEXT_PORT=$((NEXT_PORT + 1))
	verdict "fio --verb=$1" 'issued rwts: total=0,128' ''
}

# migrate: a guest of QEMU's moves from B to A while it runs.
migrate() {
	local machine=(qemu-system-x86_64 -machine pc,accel=tcg -m 32 -display none -nodefaults)
	start server A "${machine[@]}" -qmp "unix:$TMP/target.qmp,server,nowait" -incoming "rdma:$ADDRESS_A:$NEXT_PORT"
	until_true "$PATIENCE" listens_rdma "${PID[server]}" "$NEXT_PORT" || true
	start client B "${machine[@]}" -qmp "unix:$TMP/source.qmp,server,nowait"
	until_true "$PATIENCE" test -S "$TMP/source.qmp" || true
	"$HERE/migrate.py" "$TMP/source.qmp" "$TMP/target.qmp" "rdma:$ADDRESS_A:$NEXT_PORT" "$PATIENCE" >"$TMP/migrate" 2>&1 ||
		fail "QEMU's migration by rdma: ($WORLD)" "$TMP/server" "$TMP/client" "$TMP/migrate"
	kill_hard client
	kill_hard server
	say "ok    QEMU's migration by rdma:"
}

# measure TEST...: qperf asks for no GID, so it connects by address, or on a fabric by LID.
measure() {
	local test how=(-cm 1)
	[ "${#HOST_A[@]}" -eq 0 ] || how=()
	serve_tcp server qperf --listen_port
	for test; do
		start client B qperf -lp "$PORT" "${how[@]}" -t 1 "$IP4_A" "$test"
		finish client && says client ' = ' || fail "qperf $test ($WORLD)" "$TMP/server" "$TMP/client"
		say "ok    qperf $test"
	done
	kill_hard server
}

# one_of_each: on a fabric.
one_of_each() {
	ucx rc_verbs,ud_verbs tag_lat -n 1000
	measure rc_lat uc_bw ud_lat ver_rc_fetch_add
	mpi_on_hosts rc_verbs,ud_verbs
	libfabric verbs msg
	by_addresses
	blocks write
	migrate
	by_rpma
}

mpicc.openmpi -o "$TMP/mpi_ring" "$HERE/mpi_ring.c"
if [ "${2:-}" = brief ]; then
	one_of_each
	done_testing
	exit
fi
if [ "$ANYRDMA_DEVICES" = iwarp ]; then
	no_ucx
	mpi_by_libfabric
else
	ucx rc_verbs,ud_verbs tag_lat -n 1000
	ucx rc_verbs,ud_verbs tag_bw -n 200 -s 1000003
	ucx rc_verbs,ud_verbs ucp_put_bw -n 1000 -s 5000
	ucx rc_verbs,ud_verbs ucp_get -n 200 -s 100000
	ucx rc_verbs,ud_verbs ucp_fadd -n 1000 -s 8
	ucx ud_verbs tag_bw -n 200 -s 100003
fi
if [ "${#HOST_A[@]}" -gt 0 ]; then
	for test in tag_lat tag_bw tag_sync_lat tag_sync_bw stream_lat stream_bw ucp_am_lat ucp_am_bw ucp_put_lat ucp_put_bw \
		ucp_get ucp_add ucp_fadd ucp_swap ucp_cswap; do
		ucx rc_verbs,ud_verbs "$test" -n 200 -s 8
		ucx ud_verbs "$test" -n 200 -s 8
	done
	for test in "am_lat -D short" "am_lat -D bcopy -s 4000" "am_bw -D zcopy -s 4000" "put_lat -D short" "put_bw -D zcopy -s 100000" \
		"get -D bcopy -s 4000" "get -D zcopy -s 100000" fadd cswap add_lat add_mr; do
		# shellcheck disable=SC2086 # words
		uct rc_verbs $test
	done
	for test in "am_lat -D short" "am_lat -D bcopy -s 1000" "am_bw -D zcopy -s 1000"; do
		# shellcheck disable=SC2086 # words
		uct ud_verbs $test
	done
	measure rc_lat rc_bw rc_bi_bw rc_rdma_{read,write}_{lat,bw} rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr \
		ver_rc_compare_swap ver_rc_fetch_add uc_lat uc_bw uc_bi_bw uc_rdma_write_{lat,poll_lat,bw} ud_lat ud_bw ud_bi_bw
	mpi_on_hosts rc_verbs,ud_verbs
	mpi_on_hosts ud_verbs
	libfabric verbs msg
	by_addresses
fi
for verb in write read send; do
	blocks "$verb"
done
[ "${#HOST_A[@]}" -gt 0 ] || measure rc_lat rc_rdma_read_bw ver_rc_fetch_add
migrate
if [ "${#HOST_A[@]}" -gt 0 ]; then
	by_rpma
	done_testing
	exit
fi
if [ "${NAMESPACES[0]}" = "${NAMESPACES[1]}" ]; then # Open MPI starts both on its own host
	mpi rc_verbs,ud_verbs
	mpi ud_verbs
else # libfabric leaves out the loopback interface
	libfabric "verbs;ofi_rxm" rdm
	libfabric verbs msg
fi
done_testing
