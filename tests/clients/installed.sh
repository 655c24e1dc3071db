#!/bin/bash
# SPDX-License-Identifier: MIT
# installed.sh: the README's commands. What "make install" puts below a staged DESTDIR is used from there: the command, a pair of
# Debian's programs, an ordinary socket program; the manual and the completion are there and say the same. What "make demo"
# shows has a number in every place.
# shellcheck source=tests/clients/lib.sh
. "$(dirname "$0")/lib.sh"
enter loopback "$@"

# what_make_does GOAL: its last command, which this script then runs; the ones before it build.
what_make_does() { make --no-print-directory -C "$HERE/../.." -n "$1" BUILD="$ANYRDMA_BUILD" PREFIX=/usr 2>"$TMP/make" | tail -n 1; }

install_it() {
	local command
	command=$(what_make_does install)
	[ "$command" = "cmake --install $ANYRDMA_BUILD --prefix /usr" ] || fail "make install does something else: $command"
	DESTDIR=$TMP/stage $command >"$TMP/install" 2>&1 || fail "make install" "$TMP/install"
	ANYRDMA=$TMP/stage/usr/bin/anyrdma
	say "ok    make install, staged: $(find "$TMP/stage" ! -type d | wc -l) files"
}

# the_command_works: nothing comes from the build tree any more.
the_command_works() {
	"$ANYRDMA" doctor >"$TMP/doctor" && says doctor 'can be used on this machine' || fail "doctor, installed" "$TMP/doctor"
	"$ANYRDMA" run cat /proc/self/maps >"$TMP/maps"
	says maps "$TMP/stage/usr/lib.*/libibverbs.so.1" && ! says maps "$(realpath "$ANYRDMA_BUILD")/" || fail "run loads others' libraries" "$TMP/maps"
	pair 4 ibv_rc_pingpong -c
	pair 4 ib_write_bw -F -n 100
	start server A --sockets python3 -c 'import socket
s = socket.create_server(("127.0.0.1", 18999)); c = s.accept()[0]; c.sendall(c.recv(9)); print("served")'
	until_true "$PATIENCE" listens_rdma "${PID[server]}" 18999 || true
	start client B --sockets python3 -c 'import socket
c = socket.create_connection(("127.0.0.1", 18999)); c.sendall(b"word"); assert c.recv(9) == b"word"; print("answered")'
	verdict "ordinary sockets, installed" answered served
}

# a_fabric_works: the README's, of two programs on their own; its process is the installed one.
a_fabric_works() {
	"$ANYRDMA" run --fabric sh -c 'ibv_devinfo -d ib0 && cat /proc/[0-9]*/cmdline | tr "\000" "\n"' >"$TMP/fabric" 2>&1 || fail "run --fabric, installed" "$TMP/fabric"
	says fabric 'PORT_ACTIVE' && says fabric "^$TMP/stage/usr/libexec/anyrdma/anyrdma-fabricd$" ||
		fail "run --fabric, installed: no fabric, or another one" "$TMP/fabric"
	say "ok    a fabric, installed"
}

# the_words_agree: every command of the help is in the manual and in the completion.
the_words_agree() {
	local word words manual=$TMP/stage/usr/share/man/man1/anyrdma.1 completion
	completion=$(find "$TMP/stage" -path '*bash-completion*' -type f)
	[ -f "$manual" ] && [ -n "$completion" ] || fail "no manual, or no completion" "$TMP/install"
	words=$("$ANYRDMA" --help | sed -n 's/^  \([a-z]\+\) .*/\1/p')
	[[ $words = *run*demo*fabric* ]] || fail "the help has no list of commands: $words"
	for word in $words; do
		grep -q "Cm $word" "$manual" || fail "the manual does not know: $word"
		bash -c '. "$1" && COMP_WORDS=(anyrdma "") COMP_CWORD=1 && _anyrdma && printf "%s\n" "${COMPREPLY[@]}"' - "$completion" |
			has -x "$word" || fail "the completion does not know: $word"
	done
	say "ok    manual and completion know the commands"
}

demo_is_complete() {
	[[ $(what_make_does demo) == "$ANYRDMA_BUILD/bin/anyrdma demo" ]] || fail "make demo does something else: $(what_make_does demo)"
	"$ANYRDMA" demo --rounds 1 --seconds 1 >"$TMP/demo" 2>&1 || fail "demo" "$TMP/demo"
	[ "$(grep -cE '^( |WRITE|SEND|READ).* [0-9.]+ (Gb/s|us) +[0-9.]+ (Gb/s|us) +[0-9.]+ (Gb/s|us) +[0-9.]+x' "$TMP/demo")" -eq 6 ] ||
		fail "the demo's table is not complete" "$TMP/demo"
	say "ok    demo: six rows, each with its numbers"
}

install_it
the_command_works
a_fabric_works
the_words_agree
demo_is_complete
done_testing
