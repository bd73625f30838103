# shellcheck shell=bash
# Bundle: binaries that run on another x86-64 Linux, also an older one. Sourced by ./dev.
#
# bin/ holds the programs and tests. lib/ holds the library and every other shared library that they need, except the
# system's; a relative run path finds lib/. The check runs a copy of the bundle elsewhere, with an empty environment.

# glibc and the unwinder, which must come from the machine that runs the bundle.
SYSTEM_PARTS='^(ld-linux-x86-64|libc|libm|libmvec|libdl|librt|libpthread|libresolv|libutil|libanl|libgcc_s)\.so'

# Not those that nvcc links, for the stand-ins and for this machine's glibc.
bundle_programs() {
  find "$1/perf" "$1/tools" "$1/trainer" "$1/tests" -path '*/tests/cuda/programs' -prune -o \
    -type f -executable ! -name '*.so*' ! -name '*.p' \
    -exec sh -c 'head -c4 "$1" | grep -q ELF' _ {} \; -print 2>/dev/null
}

# needed_libraries FILE...: paths of the shared libraries that the files load, without the system's.
needed_libraries() {
  local path
  ldd "$@" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | while read -r path; do
    [[ $(basename "$path") =~ $SYSTEM_PARTS ]] || echo "$path"
  done
}

# bundle_licences FOLDER LIBRARY...: copies the licences of the bundled libraries.
bundle_licences() {
  local folder=$1 library package
  shift
  command -v dpkg-query >/dev/null || return 0
  for library in "$@"; do
    # If /lib is a link to /usr/lib, a package may have registered either path. No package: no licence to copy.
    package=$(dpkg-query -S "$(readlink -f "$library")" "/lib/${library#*/lib/}" 2>/dev/null | cut -d: -f1 | head -n1) || true
    if [[ -n $package && -r /usr/share/doc/$package/copyright ]]; then
      cp "/usr/share/doc/$package/copyright" "$folder/$package.txt"
    fi
  done
}

bundle_readme() {
  cat <<TEXT
tutti $1, built on $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' /etc/os-release) with $(g++ --version | head -n1)

Runs on x86-64 Linux with glibc $2 or newer; nothing is installed, the folder can be moved.

  bin/all_reduce_perf --procs 2 --memory host      the benchmark over 2 local processes, results checked
  bin/tutti-plan --help                            plans: print, verify, price
  bin/trainer --ranks 2 --model cnn                trains with data parallelism (--help)
  bin/test_core, bin/test_reduce, ...              the tests (GoogleTest)
  gpu-test [full]                                  the tests of CUDA on this machine's GPU, and a table of its speed
  gpu-test perf                                    the table only: 2, 4, 8 ranks on one GPU, shares of copying
  include/tutti/tutti.h, lib/libtutti.so.0         the library to link
  lib/libtutti_malloc.so                           preload it, also for bin/test_malloc: the ranks of a host then reach
                                                   large memory of malloc without a copy
  lib/nccl/libnccl.so.2, include/nccl/nccl.h       the interface of NCCL, on the current CUDA device, or on host
                                                   memory where none is current: preload it or link to it

lib/ also holds the shared libraries that the programs need; licences/ their terms.
TEXT
}

# In its own folder: lib/ on a search path must not replace another libnccl.so.2.
bundle_nccl() {
  local built=$1 folder=$2
  [[ -e $built/plugins/nccl/libnccl.so.2 ]] || return 0
  mkdir -p "$folder/lib/nccl" "$folder/include/nccl"
  cp "$built/plugins/nccl/libnccl.so.2" "$folder/lib/nccl/"
  ln -sf libnccl.so.2 "$folder/lib/nccl/libnccl.so"
  cp plugins/nccl/nccl*.h "$folder/include/nccl/"
  # shellcheck disable=SC2016 # $ORIGIN is for the loader
  patchelf --set-rpath '$ORIGIN/..' "$folder/lib/nccl/libnccl.so.2"
}

# bundle_fill BUILD FOLDER VERSION
bundle_fill() {
  local built=$1 folder=$2 version=$3 programs library
  mapfile -t programs < <(bundle_programs "$built")
  mkdir -p "$folder/bin" "$folder/lib" "$folder/licences" "$folder/include/tutti"
  cp "${programs[@]}" "$folder/bin/"
  cp include/tutti/*.h "$folder/include/tutti/"
  cp "$built/libtutti.so.$version" "$folder/lib/libtutti.so.0"
  ln -sf libtutti.so.0 "$folder/lib/libtutti.so"
  cp "$built/plugins/malloc/libtutti_malloc.so" "$folder/lib/"
  bundle_nccl "$built" "$folder"
  mapfile -t libraries < <(needed_libraries "${programs[@]}" "$folder/lib/libtutti.so.0" | grep -v -E '/lib(tutti|nccl|cuda)\.so')
  for library in "${libraries[@]}"; do
    cp -L "$library" "$folder/lib/$(basename "$library")"
  done
  bundle_licences "$folder/licences" "${libraries[@]}"
  # shellcheck disable=SC2016 # $ORIGIN is for the loader
  patchelf --set-rpath '$ORIGIN/../lib:$ORIGIN/../lib/nccl' "$folder"/bin/*
  # shellcheck disable=SC2016
  patchelf --set-rpath '$ORIGIN' "$folder"/lib/*.so.*
  if [[ -e $folder/bin/test_cuda ]]; then
    cp dev.d/gpu_test.sh "$folder/gpu-test"
    cp dev.d/gpu_frameworks.py "$folder/gpu-frameworks.py"
  fi
  find "$folder/bin" "$folder/lib" -type f | while read -r library; do expect_old_glibc "$library"; done
  bundle_readme "$version" "$(glibc_needed "$folder"/bin/* "$folder"/lib/*.so.*)" >"$folder/README"
}

# Runs a copy elsewhere, with an empty environment: every program finds its libraries inside, and the benchmark runs.
bundle_check() {
  local copy outside
  copy=$(mktemp -d)
  # shellcheck disable=SC2064 # expand the folder now
  trap "rm -rf '$copy'" EXIT
  cp -a "$1/." "$copy/"
  outside=$(needed_libraries "$copy"/bin/* | grep -v "^$copy/" || true)
  [[ -z $outside ]] || fail 1 "the bundle needs libraries from outside: $outside"
  heading "check: a copy in $copy, empty environment"
  env -i "$copy/bin/all_reduce_perf" --procs 2 --memory host -b 8 -e 64K -f 8 -n 5 -w 1 -c 1
  env -i LD_PRELOAD="$copy/lib/libtutti_malloc.so" "$copy/bin/test_malloc" --gtest_brief=1
}

verb_bundle() {
  local version folder built=$BUILD-bundle
  install_packages build test bundle trainer
  fetch_cuda_tools
  find_old_glibc
  configure "$built" "$(trainer_option)" "$OLD_GLIBC"
  compile "$built"
  version=$(sed -n "s/^  version: '\(.*\)',/\1/p" meson.build | head -n1)
  folder=$BUILD/bundle/tutti-$version-linux-$(uname -m)
  heading "bundling into $folder"
  rm -rf "$folder"
  bundle_fill "$built" "$folder" "$version"
  bundle_check "$folder"
  heading "$folder: $(find "$folder/bin" -type f | wc -l) programs, $(du -sh "$folder" | cut -f1)"
}
