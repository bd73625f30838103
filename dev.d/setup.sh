# shellcheck shell=bash
# Set-up: packages, Meson, build folders. Sourced by ./dev.

BUILD=${BUILD:-build}
JOBS=${JOBS:-$(nproc)}
MESON_LEAST=1.0

heading() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

# fail STATUS TEXT: prints the reason and exits.
fail() {
  printf 'dev: %s\n' "$2" >&2
  exit "$1"
}

# Whether a probe of packages.txt succeeds.
probe() {
  local subject=${1#*:}
  case $1 in
    cmd:*) command -v "$subject" >/dev/null ;;
    pkg:*) command -v pkg-config >/dev/null && pkg-config --exists "$subject" ;;
    file:*) [[ -e $subject ]] ;;
    python:*) python3 -c "import $subject" 2>/dev/null ;;
    clang:*)
      local folder
      folder=$(clang++ -print-resource-dir 2>/dev/null) &&
        [[ -n $(find "$folder/" -name "$subject" -print -quit) ]]
      ;;
    *) fail 1 "packages.txt: unknown probe '$1'" ;;
  esac
}

has_systemd() { [[ -d /run/systemd/system ]]; }
is_root() { [[ $EUID -eq 0 ]]; }

# missing_packages GROUP...: lines "package groups" for packages whose probe fails.
missing_packages() {
  local package groups check group
  while read -r package groups check; do
    [[ -z $package || $package == \#* ]] && continue
    for group in "$@"; do
      if [[ ,$groups, == *,$group,* ]] && ! probe "$check"; then
        printf '%s %s\n' "$package" "$groups"
        break
      fi
    done
  done <"$ROOT/dev.d/packages.txt"
}

apt() {
  local as_root=()
  is_root || as_root=(sudo)
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@"
}

# Prints why nothing can be installed here. Prints nothing if packages can be installed.
why_no_install() {
  if ! command -v apt-get >/dev/null; then
    echo "this machine has no apt"
  elif ! is_root && ! command -v sudo >/dev/null; then
    echo "neither root nor sudo"
  fi
}

# install_offered LINES: installs the packages of missing_packages' lines, without optional ones that apt does not know.
install_offered() {
  local names=() package groups
  apt update || return
  while read -r package groups; do
    if [[ $groups == *optional* ]] && ! apt-cache show "$package" >/dev/null 2>&1; then
      echo "not offered by this distribution, continuing without: $package"
    else
      names+=("$package")
    fi
  done <<<"$1"
  [[ ${#names[@]} -eq 0 ]] || apt install --no-install-recommends -y "${names[@]}" >/dev/null
}

# names_of LINES: the packages of missing_packages' lines.
names_of() { cut -d' ' -f1 <<<"$1" | paste -sd ' '; }

# install_groups GROUP...: installs the missing packages of the groups; quick if none is missing. Where that is
# impossible, the machine does without the optional ones. Where systemd runs, it does without those of services.
install_groups() {
  local missing services='' names why
  missing=$(missing_packages "$@")
  if has_systemd && services=$(grep ' .*service' <<<"$missing"); then
    echo "not installed, because they would start services: $(names_of "$services")"
    missing=$(grep -v ' .*service' <<<"$missing" || true)
  fi
  [[ -n $missing ]] || return 0
  names=$(names_of "$missing")
  why=$(why_no_install)
  if [[ -z $why ]]; then
    heading "installing: $names"
    install_offered "$missing" && return
    why="apt failed"
  fi
  if grep -q -v ' .*optional' <<<"$missing"; then
    fail 2 "$why; install (Debian's names): $names - then run again"
  fi
  echo "$why: continuing without $names"
}

# install_packages GROUP...: what every verb begins with.
install_packages() {
  install_groups "$@"
  find_meson
}

# fetch_wheels FOLDER PACKAGE...: puts tools of NVIDIA from the Python registry into a folder of .cache.
fetch_wheels() {
  local folder=$1
  shift
  heading "from the Python registry, into ${folder#"$ROOT"/}: $*"
  python3 -m pip install --quiet --retries 1 --no-deps --root-user-action ignore --target "$folder" "$@" || return
  chmod +x "$folder"/nvidia/*/bin/* "$folder"/nvidia/*/nvvm/bin/* 2>/dev/null || true
}

find_nvcc() { command -v nvcc >/dev/null || [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]]; }

# The parts of CUDA's toolkit that the machine lacks, pinned: nvcc itself; the ptxas of CUDA 12.9, whose code older
# drivers load; cuobjdump and nvdisasm, with which tests/cuda/sass_test.py reads the kernels. Without the network the
# build goes on without them.
fetch_cuda_tools() {
  local cache=$ROOT/.cache fresh=''
  if ! find_nvcc; then
    export CUDA_HOME=$cache/cuda-toolkit/nvidia/cu13
    if [[ ! -x $CUDA_HOME/bin/nvcc ]]; then
      fetch_wheels "$cache/cuda-toolkit" nvidia-{cuda-nvcc,nvvm,cuda-crt,cuda-runtime}==13.0.88 nvidia-cuda-cccl==13.0.85 || {
        echo "nvcc cannot be fetched: this build has no CUDA devices"
        return 0
      }
      # As in NVIDIA's own toolkit; nvcc looks there.
      ln -sfn lib "$CUDA_HOME/lib64"
      ln -sf libcudart.so.13 "$CUDA_HOME/lib/libcudart.so"
      fresh=1
    fi
  fi
  if [[ ! -x $cache/cuda-ptxas/nvidia/cuda_nvcc/bin/ptxas ]]; then
    fetch_wheels "$cache/cuda-ptxas" nvidia-cuda-nvcc-cu12==12.9.86 && fresh=1 ||
      echo "ptxas cannot be fetched: drivers before CUDA 13 will translate the kernels"
  fi
  if [[ ! -x $cache/cuda-tools/nvidia/cu13/bin/nvdisasm ]]; then
    fetch_wheels "$cache/cuda-tools" nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37 ||
      echo "they cannot be fetched: the budgets of the kernels' machine code are not checked"
  fi
  # An older build folder has not seen them.
  [[ -z $fresh || ! -f $BUILD/build.ninja ]] || "${MESON[@]}" setup --reconfigure "$BUILD" >"$BUILD/configure.log" 2>&1
}

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

# Older distributions have an older Meson: then a private Meson is used.
find_meson() {
  MESON=(meson)
  version_at_least "$(meson --version)" "$MESON_LEAST" && return
  local venv=$ROOT/.cache/venv
  if [[ ! -x $venv/bin/meson ]]; then
    heading "meson $(meson --version) is older than $MESON_LEAST: installing one in .cache/venv"
    install_groups meson
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet 'meson>=1.0'
  fi
  MESON=("$venv/bin/meson")
}

# configure FOLDER OPTION...: sets the folder up, or updates the given options in it. Meson's lines go to a log.
configure() {
  local folder=$1 verb=setup
  shift
  heading "configuring $folder"
  if [[ -f $folder/build.ninja ]]; then
    [[ $# -gt 0 ]] || return 0
    verb=configure
  fi
  mkdir -p "$folder"
  "${MESON[@]}" "$verb" "$folder" "$@" >"$folder/configure.log" 2>&1 || {
    tail -n 20 "$folder/configure.log"
    fail 1 "meson $verb failed; all of its output: $folder/configure.log"
  }
}

# compile FOLDER TARGET...: shows a line of progress, and the output of commands that fail. The rest goes to a log.
compile() {
  heading "building $1: ${*:2}"
  NINJA_STATUS='[%f/%t] ' ninja -C "$1" -j "$JOBS" "${@:2}" 2>&1 | python3 "$ROOT/dev.d/progress.py" "$1/build.log" || {
    echo "all of ninja's output: $1/build.log"
    return 1
  }
}

# build_release OPTION...
build_release() {
  configure "$BUILD" "$@"
  compile "$BUILD" release
}
