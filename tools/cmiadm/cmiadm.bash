# Completion of cmiadm for bash.
_cmiadm() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command= i
  local -a scope=()
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
      --runtime-dir | --node)
        scope+=("${COMP_WORDS[i]}" "${COMP_WORDS[i + 1]}")
        ((i++))
        ;;
      --wait | --every | --count | --svg) ((i++)) ;;
      -*) ;;
      *) [[ -n $command ]] || command=${COMP_WORDS[i]} ;;
    esac
  done
  case $before in
    --runtime-dir)
      mapfile -t COMPREPLY < <(compgen -d -- "$word")
      return
      ;;
    --svg)
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
      return
      ;;
    --node | --wait | --every | --count) return ;;
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W \
      '--runtime-dir --node --json --ids --wait --every --count --svg --help --version' -- "$word")
    return
  fi
  case $command in
    '') mapfile -t COMPREPLY < <(compgen -W \
      'list show reap doctor ping top hot map metrics quiesce resume reservation' -- "$word") ;;
    reservation) mapfile -t COMPREPLY < <(compgen -W 'delete' -- "$word") ;;
    show | quiesce | resume | hot | map)
      # The program that is being completed, wherever it lies.
      mapfile -t COMPREPLY < <(compgen -W \
        "$("${COMP_WORDS[0]}" "${scope[@]}" list --ids 2>/dev/null)" -- "$word")
      ;;
    ping) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
  esac
}
complete -F _cmiadm cmiadm
