# SPDX-License-Identifier: MIT
# bash completion for anyrdma
_anyrdma() {
	local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} first=2 words=

	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W 'run devices doctor demo fabric help --help --version' -- "$cur")
		return
	fi
	case $cmd in
	run)
		while [[ ${COMP_WORDS[first]} == --* && first -lt COMP_CWORD ]]; do
			first=$((first + 1))
		done
		if ((COMP_CWORD <= first)) && [[ $cur == -* ]]; then
			words='--host --fabric --sockets -- --help'
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
	fabric)
		if ((COMP_CWORD == 2)); then
			words='up status hosts map topology counters tables cut mend inject capture sm down run --help'
		else
			case ${COMP_WORDS[2]} in
			up | run)
				words='--name --sm=auto --sm=off --mtu --speed --seed --ports-per-hca --ip --quiet
					pair star:4 ring:6 fat-tree:4 tree:4,2,8 torus:3x3 dragonfly:4,2,2'
				mapfile -t COMPREPLY < <(compgen -W "$words" -A file -- "$cur")
				return
				;;
			sm) words='opensm stop --host --' ;;
			map) words='--svg= --name' ;;
			capture)
				mapfile -t COMPREPLY < <(compgen -W 'stop' -A file -- "$cur")
				return
				;;
			*) words='--name' ;;
			esac
		fi
		;;
	help) ((COMP_CWORD == 2)) && words='run devices doctor demo fabric help' ;;
	esac
	mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _anyrdma anyrdma
