# shellcheck shell=bash
# The trainer: a training run on real text, and its benchmark. Sourced by ./dev.

# Enables the trainer if BLAS is installed, also if it was installed after the build folder was set up.
trainer_option() {
  if probe pkg:openblas; then echo -Dtrainer=enabled; else echo -Dtrainer=auto; fi
}

# What ./dev train --mode NAME adds, unless FLAGS set it.
mode_flags() {
  case $1 in
    layers | pipeline | fusion) echo --ranks 2 ;;
    grid) echo --ranks 8 ;;
    server) echo --ranks 3 ;;
    expert) echo --ranks 2 --experts 4 ;;
    elastic) echo --ranks 3 --kill 1:40 ;;
    *) echo --ranks 4 ;;
  esac
  echo --steps 120 --width 64 --depth 4 --context 32 --batch 16
  [[ $1 == elastic ]] || echo --accumulate 4
  [[ $1 == server ]] && echo --optimizer sgd --momentum 0 --learning-rate 0.5
  echo --drawing "$BUILD/trainer/$1.svg"
}

# train_mode FLAGS, with --mode NAME: on this project's documentation. FLAGS take the place of the mode's own.
train_mode() {
  local own given=" $* " flags=() text i mode
  mode=${given#* --mode }
  mapfile -t own < <(mode_flags "${mode%% *}" | tr ' ' '\n')
  for ((i = 0; i < ${#own[@]}; i += 2)); do
    [[ $given == *" ${own[i]} "* ]] || flags+=("${own[i]}" "${own[i + 1]}")
  done
  if [[ $given != *" --data "* && $given != *" --model "* ]]; then
    mapfile -t text < <(git ls-files -- '*.md' 2>/dev/null || find . -name '*.md' -not -path "./$BUILD*")
    flags+=(--data "${text[@]}")
  fi
  heading "trainer $*"
  "$BUILD/trainer/trainer" "$@" "${flags[@]}"
}

# Trains on this project's documentation, unless FLAGS name other data or another model.
train() {
  if [[ " $* " == *" --mode "* && " $* " != *" --mode data "* ]]; then
    train_mode "$@"
    return
  fi
  local flags=("$@") text
  if [[ " $* " != *" --data"* && " $* " != *" --model"* ]]; then
    mapfile -t text < <(git ls-files -- '*.md' 2>/dev/null || find . -name '*.md' -not -path "./$BUILD*")
    flags+=(--data "${text[@]}")
  fi
  [[ " $* " == *" --timeline"* ]] || flags+=(--timeline "$BUILD/trainer/timeline.json")
  [[ " $* " == *" --ranks"* ]] || flags+=(--ranks 2)
  heading "trainer ${*:-on the documentation of this project}"
  "$BUILD/trainer/trainer" "${flags[@]}"
  [[ " $* " == *" --timeline"* ]] ||
    heading "$BUILD/trainer/timeline.json shows the buckets: open it in chrome://tracing or https://ui.perfetto.dev"
}

# The end of ./dev run. A machine without BLAS has no trainer; this is not a failure.
train_or_say_why() {
  if [[ -x $BUILD/trainer/trainer ]]; then
    train
  else
    heading "no training run: OpenBLAS (libopenblas-dev) is missing"
  fi
}

verb_train() {
  install_packages build trainer
  configure "$BUILD" -Dtrainer=enabled
  compile "$BUILD" trainer/trainer
  train "$@"
}

bench_trainer() {
  install_packages build trainer
  configure "$BUILD" -Dtrainer=enabled
  compile "$BUILD" trainer/trainer
  show_machine
  heading "trainer: step time over bucket sizes"
  python3 trainer/bench.py --trainer "$BUILD/trainer/trainer" --out "$BUILD/bench" "$@"
}

bench_modes() {
  install_packages build trainer
  configure "$BUILD" -Dtrainer=enabled
  compile "$BUILD" trainer/trainer
  show_machine
  heading "trainer: every mode"
  python3 trainer/bench_modes.py --trainer "$BUILD/trainer/trainer" --out "$BUILD/bench/modes" "$@"
}
