#!/bin/bash
# Installs what Dovetail needs on Debian 12: system packages, a Rust toolchain when none new enough is there, and the
# Python packages of scripts/requirements.txt in .venv. Run it as root or as a user who may use sudo. It installs only
# what is missing, so it is quick when run again.
#   scripts/setup.sh         what the build, the demonstration and the tests need
#   scripts/setup.sh --dev   also clang, clang-format and ccache: fuzzing, formatting, quicker builds
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

packages=(ca-certificates g++ cmake ninja-build python3 python3-venv libssl-dev nlohmann-json3-dev libcli11-dev
  libgtest-dev libsimde-dev libedit-dev zlib1g-dev)
case "${1:-}" in
  "") ;;
  --dev) packages+=(clang libclang-rt-14-dev clang-format ccache) ;;
  *)
    echo "usage: scripts/setup.sh [--dev]" >&2
    exit 2
    ;;
esac

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

# at_least <version> <lowest version>
at_least() {
  [[ "$(printf '%s\n' "$2" "$1" | sort -V | head -n 1)" == "$2" ]]
}

rust_is_new_enough() {
  local rustc_version
  command -v cargo >/dev/null && command -v rustc >/dev/null || return 1
  rustc_version=$(rustc --version 2>/dev/null | cut -d ' ' -f 2) || return 1
  at_least "$rustc_version" "$rust_needed"
}

installed() {
  [[ "$(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]
}

# The installed packages must be exactly the pinned ones.
python_packages_match() {
  [[ -x .venv/bin/python ]] && .venv/bin/python - scripts/requirements.txt <<'PYTHON'
import importlib.metadata
import sys

for line in open(sys.argv[1]):
    requirement = line.split("#")[0].strip()
    if requirement:
        name, version = requirement.split("==")
        if importlib.metadata.version(name) != version:
            sys.exit(1)
PYTHON
}

install_python_packages() {
  local python=python3
  # A .venv that was moved, or whose Python is gone, can't be repaired.
  if ! .venv/bin/python -c 'import pip' 2>/dev/null; then
    "$python" -c 'import ensurepip, venv' 2>/dev/null || python=/usr/bin/python3
    "$python" -m venv --clear .venv || return 1
  fi
  .venv/bin/python -m pip install --disable-pip-version-check --requirement scripts/requirements.txt
}

command -v dpkg-query >/dev/null || fail "this script installs Debian packages, and dpkg is not here." \
  "On another system install the equivalents of: ${packages[*]}" \
  "and Rust; docs/dependencies.md lists the versions. Then: python3 -m venv .venv &&" \
  ".venv/bin/pip install --requirement scripts/requirements.txt"

missing=()
for package in "${packages[@]}"; do
  installed "$package" || missing+=("$package")
done
rust_needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' third_party/rust/Cargo.toml)
# Debian 12 names its current Rust toolchain rustc-web and cargo-web; it replaces the packages rustc and cargo.
rust_is_new_enough || missing+=(rustc-web cargo-web)
venv_is_ready=0
! python_packages_match 2>/dev/null || venv_is_ready=1

steps_begin build/setup/logs $(((${#missing[@]} > 0 ? 2 : 0) + 1 - venv_is_ready))
if ((${#missing[@]} == 0)); then
  echo "System packages: all there"
else
  as_root=()
  echo "System packages to install, with what they need: ${missing[*]}"
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "you are not root and sudo is not installed." \
      "Ask an administrator to run: apt-get install --no-install-recommends ${missing[*]}"
    sudo --validate --prompt "sudo wants your password to install them: " || fail "sudo did not let you install packages"
    as_root=(sudo)
  fi
  step "Read Debian's list of packages" "${as_root[@]}" apt-get update
  try_step "Install the system packages" "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --no-install-recommends "${missing[@]}" ||
    fail "apt-get could not install the packages (see above)." \
      "rustc-web and cargo-web are in bookworm and bookworm-security; is this an up to date Debian 12?"
fi
hash -r
rust_is_new_enough || fail "Rust $rust_needed or newer is needed; PATH finds $(rustc --version 2>/dev/null || echo none)." \
  "Update it (rustup update), or take it from PATH so that Debian's is found."

if ((venv_is_ready)); then
  echo "Python packages in .venv: all there"
else
  echo "Python packages to install in .venv: $(sed '/^#/d' scripts/requirements.txt | tr '\n' ' ')"
  step "Install the Python packages" install_python_packages
fi
echo "Ready: $(g++ --version | head -n 1), $(cmake --version | head -n 1), $(rustc --version)"
