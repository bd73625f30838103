# Bash completion for tutti's programs. The flags come from the program's own --help, so they are always right.
_tutti() {
  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} program=$1 choices=''
  COMPREPLY=()
  if [[ $word == -* ]]; then
    choices=$("$program" --help 2>/dev/null | sed -n 's/^  *\(-[-a-zA-Z0-9_, ]*\).*/\1/p' | tr ', ' '\n\n' | grep '^-')
  else
    # Names that the help of a flag lists, or that --list prints.
    case ${program##*/}:$before in
      tutti-topo:-f | tutti-topo:--format) choices='text json svg topo hwloc nccl' ;;
      tutti-plan:-a | tutti-plan:--algorithm) choices=$("$program" --list 2>/dev/null | awk '{ print $2 }') ;;
      tutti-plan:*tutti-plan) choices=$("$program" --list 2>/dev/null | awk '{ print $1 }') ;;
      *_perf:-o | *_perf:--op) choices='sum prod min max avg mulsum band bor bxor all' ;;
      *_perf:-d | *_perf:--datatype)
        choices='int8 uint8 int16 uint16 int32 uint32 int64 uint64 half float double bfloat16 f8e4m3 f8e5m2 bool all'
        ;;
      *_perf:--memory) choices='host cuda any' ;;
    esac
  fi
  if [[ -n $choices ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$choices" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null || true
  fi
}
complete -F _tutti tutti-plan tutti-inspect tutti-sim tutti-topo tutti-tune @PERF_TOOLS@
