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
    clang:*)
      local folder
      folder=$(clang++ -print-resource-dir 2>/dev/null) &&
        [[ -n $(find "$folder/" -name "$subject" -print -quit) ]]
      ;;
    *) fail 1 "packages.txt: unknown probe '$1'" ;;
  esac
}

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
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null || fail 2 "neither root nor sudo: ask an administrator to install:$names"
    as_root=(sudo)
  fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq "$@"
}

# install_packages GROUP...: installs the missing packages; quick if none is missing.
install_packages() {
  local missing names='' package groups
  missing=$(missing_packages "$@")
  if [[ -n $missing ]]; then
    names=" $(cut -d' ' -f1 <<<"$missing" | tr '\n' ' ')"
    command -v apt-get >/dev/null ||
      fail 2 "this machine has no apt; install (Debian's names):$names- then run again"
    heading "installing:$names"
    apt update
    names=''
    while read -r package groups; do
      if [[ $groups == *optional* ]] && ! apt-cache show "$package" >/dev/null 2>&1; then
        echo "not offered by this distribution, continuing without: $package"
      elif [[ $groups == *service* && -d /run/systemd/system ]]; then
        echo "would start a service on this machine, continuing without: $package"
      else
        names+=" $package"
      fi
    done <<<"$missing"
    # shellcheck disable=SC2086 # a list of words
    [[ -z $names ]] || apt install --no-install-recommends -y $names >/dev/null
  fi
  find_meson
}

# cuobjdump and nvdisasm, with which tests/cuda/sass_test.py reads the kernels. A toolkit may lack them. Without them,
# that test is skipped.
fetch_cuda_tools() {
  local folder=$ROOT/.cache/cuda-tools
  [[ -x $folder/nvidia/cu13/bin/nvdisasm ]] && return
  command -v nvcc >/dev/null || [[ -x ${CUDA_HOME:-/usr/local/cuda}/bin/nvcc ]] || return 0
  command -v cuobjdump >/dev/null && command -v nvdisasm >/dev/null && return
  heading "cuobjdump and nvdisasm from the Python registry, into .cache/cuda-tools"
  python3 -m pip install --quiet --no-deps --target "$folder" \
    nvidia-cuda-cuobjdump==13.5.37 nvidia-cuda-nvdisasm==13.5.37 ||
    echo "they cannot be fetched: the budgets of the kernels' machine code are not checked"
  chmod +x "$folder"/nvidia/cu13/bin/* 2>/dev/null || true
}

version_at_least() { [[ $(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1) == "$2" ]]; }

# Older distributions have an older Meson: then a private Meson is used.
find_meson() {
  MESON=(meson)
  version_at_least "$(meson --version)" "$MESON_LEAST" && return
  local venv=$ROOT/.cache/venv
  if [[ ! -x $venv/bin/meson ]]; then
    heading "meson $(meson --version) is older than $MESON_LEAST: installing one in .cache/venv"
    python3 -m venv "$venv" 2>/dev/null || apt install -y python3-venv && python3 -m venv "$venv"
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
