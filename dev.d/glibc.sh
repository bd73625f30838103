# shellcheck shell=bash
# Binaries that run on systems with an older glibc. Sourced by ./dev.

# That of RHEL 8. Ubuntu 20.04 and Debian 11 have 2.31.
OLDEST_GLIBC=2.28

# make_old_glibc FOLDER: what a linker needs of that glibc: start-up code, and shared libraries that hold names and
# versions only. Zig, a package of the Python registry, makes them for a link of its own.
make_old_glibc() {
  local folder=$1 zig library form
  zig=$(mktemp -d)
  fetch_wheels "$zig" ziglang==0.17.1 || fail 2 "the names of glibc $OLDEST_GLIBC cannot be fetched"
  rm -rf "$folder" "$folder.new" && mkdir -p "$folder.new"
  echo 'int main(void) { return 0; }' >"$zig/unused.c"
  for form in pie no-pie; do
    PYTHONPATH=$zig ZIG_GLOBAL_CACHE_DIR=$zig/cache ZIG_LOCAL_CACHE_DIR=$zig/cache python3 -m ziglang cc \
      -target "$(uname -m)-linux-gnu.$OLDEST_GLIBC" "-$form" -lpthread -ldl -lm -lrt -o "$zig/unused" "$zig/unused.c"
  done
  find "$zig/cache" \( -name 'lib*.so.*' -o -name libc_nonshared.a -o -name '*crt1.o' \) -exec mv -t "$folder.new" {} +
  for library in pthread.so.0 dl.so.2 m.so.6 rt.so.1; do ln -s "lib$library" "$folder.new/lib${library%.*}"; done
  # Newer systems have all of them in libc.so.6: a linker of today asks for libc alone.
  echo "GROUP ( $folder/libc.so.6 $folder/libc_nonshared.a AS_NEEDED ( $folder/libld.so.2 $folder/libpthread.so.0" \
    "$folder/libdl.so.2 $folder/librt.so.1 ) )" >"$folder.new/libc.so"
  mv "$folder.new" "$folder"
  rm -rf "$zig"
}

# Sets OLD_GLIBC to Meson's option of a build for such systems.
find_old_glibc() {
  local folder=$ROOT/.cache/glibc-$OLDEST_GLIBC
  heading "names of glibc $OLDEST_GLIBC"
  [[ -f $folder/libc.so ]] || make_old_glibc "$folder"
  # shellcheck disable=SC2034 # read by wheel.sh and bundle.sh
  OLD_GLIBC=-Dold_glibc=$folder
}

# glibc_needed FILE...: the newest version that the files ask for.
glibc_needed() { objdump -T "$@" | sed -n 's/.*GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n1; }

# expect_old_glibc FILE: the file asks for no newer glibc, not for the system's C++ runtime, and copies no variable of
# glibc that has a second name.
expect_old_glibc() {
  local newest
  newest=$(glibc_needed "$1")
  version_at_least "$OLDEST_GLIBC" "$newest" || fail 1 "$1 asks for glibc $newest"
  ! objdump -T "$1" | grep -E 'UND.*(GLIBCXX|CXXABI)_' || fail 1 "$1 asks for the system's C++ runtime"
  ! objdump -R "$1" | grep '_COPY.*environ' || fail 1 "$1 has a copy of environ: compile with -fPIC"
}
