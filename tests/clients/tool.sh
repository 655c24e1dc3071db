#!/bin/bash
# SPDX-License-Identifier: MIT
# The anyrdma command, as a user meets it. Usage: tool.sh PATH-OF-ANYRDMA PATH-OF-FORBID
set -u
anyrdma=$(realpath "$1")
forbid=$(realpath "$2")
libdir=$(dirname "$(dirname "$anyrdma")")/lib/anyrdma
work=$(mktemp -d)
holder=
failures=0

cleanup() {
	[[ -n $holder ]] && kill "$holder" 2>/dev/null
	rm -rf "$work"
}
trap cleanup EXIT
unset LD_PRELOAD LD_LIBRARY_PATH ANYRDMA_DEVICES
# A run directory of its own needs a port of its own; and the usual one may be a stranger's.
export ANYRDMA_DIR=$work/registry ANYRDMA_PORT=$((30000 + $$ % 10000))

# expect STATUS PATTERN COMMAND...: the command's status, and a pattern somewhere in its output
expect() {
	local status=$1 pattern=$2 out rc
	shift 2
	out=$("$@" 2>&1 </dev/null)
	rc=$?
	if [[ $rc -ne $status ]] || ! grep -qE -- "$pattern" <<<"$out"; then
		echo "FAILED: $*"
		echo "  status $rc (expected $status), expected to find: $pattern"
		printf '  | %s\n' "${out//$'\n'/$'\n'  | }"
		failures=$((failures + 1))
	fi
}

check() {
	local what=$1
	shift
	if ! "$@"; then
		echo "FAILED: $what"
		failures=$((failures + 1))
	fi
}

is_json() {
	if command -v python3 >/dev/null; then
		python3 -c 'import json, sys; json.load(sys.stdin)'
	else
		cat >/dev/null
	fi
}

# The output of a command without its folds.
flat() {
	"$@" | tr -s ' \n' ' '
	return "${PIPESTATUS[0]}"
}

# --- words
expect 0 'run .*run a program' "$anyrdma" --help
expect 0 'doctor' "$anyrdma" -h
expect 0 '^anyrdma [0-9]+\.[0-9]+' "$anyrdma" --version
expect 2 '^Usage: anyrdma COMMAND' "$anyrdma"
expect 2 "Did you mean 'doctor'" "$anyrdma" docter
expect 2 "Did you mean 'devices'" "$anyrdma" dev
expect 2 'anyrdma run ib_write_bw' "$anyrdma" ib_write_bw
expect 2 'no option' "$anyrdma" --nonsense
expect 0 'Usage: anyrdma demo' "$anyrdma" help demo
for cmd in run devices doctor demo; do
	expect 0 "^Usage: anyrdma $cmd" "$anyrdma" $cmd --help
	expect 0 "^Usage: anyrdma $cmd" "$anyrdma" help $cmd
done
expect 2 'unrecognized option' "$anyrdma" devices --nonsense
expect 2 'not expected' "$anyrdma" doctor nonsense
expect 2 'number from 1' "$anyrdma" demo --rounds 0

# --- run
expect 7 '' "$anyrdma" run sh -c 'exit 7'
expect 7 '' "$anyrdma" run -- sh -c 'exit 7'
expect 0 '^--help$' "$anyrdma" run printf '%s\n' --help
expect 127 'nosuchprogram: command not found' "$anyrdma" run nosuchprogram
expect 127 'command not found' "$anyrdma" run "$work/nosuchprogram"
expect 0 'chroot' env PATH=/usr/bin:/bin "$anyrdma" run chroot --version # of /usr/sbin, as the diagnostics are
mkdir -m 000 "$work/closed"
expect 127 'command not found' env PATH="$work/closed:$PATH" "$anyrdma" run nosuchprogram
expect 126 'cannot be executed' "$anyrdma" run "$work"
touch "$work/plainfile"
expect 126 'cannot be executed' "$anyrdma" run "$work/plainfile"
expect 2 'which program' "$anyrdma" run
expect 2 'which program' "$anyrdma" run --
expect 2 'no option' "$anyrdma" run --nonsense true
expect 2 'no option' "$anyrdma" run --sockets=some true
expect 0 "LD_PRELOAD=.*$libdir/librspreload.so.1:" "$anyrdma" run --sockets env
expect 0 "LD_PRELOAD=.*$libdir/librspreload.so.1:" "$anyrdma" run --sockets=all -- "$anyrdma" run env
expect 0 '^ANYRDMA_SOCKETS=dgram$' "$anyrdma" run --sockets=dgram env
expect 0 "^LD_LIBRARY_PATH=$libdir$" "$anyrdma" run env
expect 0 "LD_PRELOAD=.*$libdir/libibverbs.so.1:$libdir/librdmacm.so.1:$libdir/libibumad.so.3" "$anyrdma" run env
expect 0 "^LD_LIBRARY_PATH=$libdir:/one:/two$" env LD_LIBRARY_PATH=/one:/two "$anyrdma" run env
[[ -n ${SANITIZED:-} ]] || # whose runtime insists on being first
	expect 0 '^LD_PRELOAD=.*libibumad.so.3:libm.so.6$' env LD_PRELOAD=libm.so.6 "$anyrdma" run env
once=$("$anyrdma" run env | grep ^LD_ | sort)
twice=$("$anyrdma" run "$anyrdma" run env | grep ^LD_ | sort)
check 'run inside run changes nothing' [ "$once" = "$twice" ]
expect 0 "^ANYRDMA_DIR=$work/rel\$" env -C "$work" ANYRDMA_DIR=rel "$anyrdma" run env
if [[ $(id -u) = 0 ]]; then
	cp /bin/true "$work/setuid" && chown 65534 "$work/setuid" && chmod 4755 "$work/setuid"
	expect 0 'warning: .*setuid' "$anyrdma" run "$work/setuid"
fi

# --- installed elsewhere, incomplete, and in a directory with a space
mkdir -p "$work/bare/bin" "$work/with space/bin" "$work/with space/lib"
cp "$anyrdma" "$work/bare/bin/"
expect 126 'cannot read .*/bare/lib/anyrdma/.*not completely' "$work/bare/bin/anyrdma" run true
expect 1 'cannot load' "$work/bare/bin/anyrdma" devices
expect 1 'problem +libraries' "$work/bare/bin/anyrdma" doctor
cp "$anyrdma" "$work/with space/bin/"
cp -a "$libdir" "$work/with space/lib/"
expect 0 'with space/lib/anyrdma/libibverbs.so.1' "$work/with space/bin/anyrdma" run cat /proc/self/maps
rm -rf "$work/bare" "$work/with space"

# --- devices
expect 0 '^DEVICE +NETDEV' "$anyrdma" devices
expect 0 '^roce_lo +lo +active' "$anyrdma" devices
expect 0 '127\.0\.0\.1' "$anyrdma" devices
expect 0 '"name": "roce_lo"' "$anyrdma" devices --json
check 'devices --json is JSON' is_json < <("$anyrdma" devices --json)
expect 0 '^roce_lo' "$anyrdma" run "$anyrdma" devices

# --- the tree under run
expect 0 '^roce_lo$' "$anyrdma" run ls /sys/class/infiniband
expect 0 '^4: ACTIVE$' "$anyrdma" run cat /sys/class/infiniband/roce_lo/ports/1/state
expect 0 '^character special file$' "$anyrdma" run stat -c %F /dev/infiniband/uverbs0

# --- doctor
expect 0 '^ok +libraries' "$anyrdma" doctor
expect 0 'can be used on this machine' "$anyrdma" doctor
check 'doctor --json is JSON' is_json < <("$anyrdma" doctor --json)
check 'no colours in a pipe' [ -z "$("$anyrdma" doctor | grep $'\033')" ]
expect 1 'problem +directory' env ANYRDMA_DIR=/proc/nosuch "$anyrdma" doctor
expect 1 'begin with a slash' env ANYRDMA_DIR=relative "$anyrdma" doctor
# one call refused is enough: who may not read proves nothing
for call in process_vm_readv process_vm_writev; do
	expect 0 '^note +memory .*may not look into each other' "$forbid" $call -- "$anyrdma" doctor
	expect 0 'through rings in shared memory then, copied twice' flat "$forbid" $call -- "$anyrdma" doctor
	expect 0 '(cap-add SYS_PTRACE|sysctl kernel.yama.ptrace_scope=0|holds until the next start)' \
		flat "$forbid" $call -- "$anyrdma" doctor
done
check 'doctor --json without process_vm_readv is JSON' is_json < <("$forbid" process_vm_readv -- "$anyrdma" doctor --json)
mkdir -m 0777 "$work/open" && chmod 0777 "$work/open"
expect 1 'others may write' env ANYRDMA_DIR="$work/open" "$anyrdma" doctor
if command -v python3 >/dev/null; then
	python3 -c '
import socket, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(("::", 0))
print(s.getsockname()[1], flush=True)
time.sleep(60)' >"$work/port" &
	holder=$!
	for _ in {1..100}; do
		[[ -s $work/port ]] && break
		sleep 0.1
	done
	# our own process must be named; that nobody can start now is the exit status
	ANYRDMA_PORT=$(<"$work/port") expect 1 "is used by python3? .process $holder," "$anyrdma" doctor
	kill "$holder"
	holder=
fi

# --- demo, where its programs are missing
expect 1 'apt install perftest iperf3 sockperf' env PATH=/nonexistent "$anyrdma" demo

# --- demo, interrupted: what it made is gone
buffers() {
	compgen -G "/dev/shm/anyrdma-demo-$1-*" || compgen -G "/tmp/anyrdma-demo-$1-*"
}
if command -v ib_write_bw iperf3 sockperf >/dev/null; then
	"$anyrdma" demo >/dev/null 2>&1 </dev/null &
	demo=$!
	for _ in {1..100}; do
		buffers $demo >/dev/null && break
		sleep 0.1
	done
	check 'demo has buffers in files' buffers $demo >/dev/null
	kill -TERM $demo
	wait $demo
	check 'an interrupted demo ends with 130' [ $? -eq 130 ]
	check 'and leaves no buffers' [ -z "$(buffers $demo)" ]
fi

if ((failures)); then
	echo "$failures failed"
	exit 1
fi
echo ok
