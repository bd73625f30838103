# shellcheck shell=bash
# The trainer: a training run on real text, and its benchmark. Sourced by ./dev.

# Enables the trainer if BLAS is installed, also if it was installed after the build folder was set up.
trainer_option() {
  if probe pkg:openblas; then echo -Dtrainer=enabled; else echo -Dtrainer=auto; fi
}

# Trains on this project's documentation, unless FLAGS name other data or another model.
train() {
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
