# SPDX-License-Identifier: MIT
# bash completion for anyrdma
_anyrdma() {
	local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} first=2 words=

	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W 'run devices doctor demo help --help --version' -- "$cur")
		return
	fi
	case $cmd in
	run)
		while [[ ${COMP_WORDS[first]} == --* && first -lt COMP_CWORD ]]; do
			first=$((first + 1))
		done
		if ((COMP_CWORD <= first)) && [[ $cur == -* ]]; then
			words='--sockets -- --help'
		elif declare -F _command_offset >/dev/null; then
			_command_offset "$first"
			return
		elif ((COMP_CWORD == first)); then
			mapfile -t COMPREPLY < <(compgen -A command -- "$cur")
			return
		else
			mapfile -t COMPREPLY < <(compgen -A file -- "$cur")
			return
		fi
		;;
	devices | doctor) words='--json --help' ;;
	demo) words='--rounds --seconds --json --help' ;;
	help) ((COMP_CWORD == 2)) && words='run devices doctor demo help' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _anyrdma anyrdma
