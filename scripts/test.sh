#!/bin/bash
# Runs every test: the checks of the source, all tests of the release build, the same tests with AddressSanitizer and
# UndefinedBehaviorSanitizer, and each fuzz target for some seconds (when clang is installed; scripts/setup.sh --dev).
# The last line says how many passed and failed. Logs are in build/test/logs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

fuzz_seconds=10
python=.venv/bin/python
started=$(steps_now)
passed=0 failed=0 summary=""

# add_results <name> <passed> <failed> <skipped>
add_results() {
  passed=$((passed + $2)) failed=$((failed + $3))
  summary+=$(printf '  %-52s %6d passed %4d failed %4d skipped' "$@")$'\n'
}

# check <name> command…: one step that counts as one test.
check() {
  if try_step "$@"; then add_results "$1" 1 0 0; else add_results "$1" 0 1 0; fi
}

# build <preset> [target…]
build() {
  local preset=$1
  shift
  cmake --preset "$preset" && cmake --build "build/$preset" --parallel "$(nproc)" ${@:+--target "$@"}
}

run_ctest() {
  local results=$PWD/build/$1/results
  rm -rf "$results"
  mkdir -p "$results"
  GTEST_OUTPUT=json:$results/ ctest --test-dir "build/$1" --parallel 2 --no-tests=error --output-on-failure \
    --test-output-size-passed 1000000 --test-output-size-failed 1000000 --output-junit "$results/ctest.xml"
}

# test_build <name> <preset>: builds it and counts every case of its tests.
test_build() {
  local counts
  if ! try_step "Build: $1" build "$2"; then
    add_results "Build: $1" 0 1 0
    return
  fi
  try_step "Tests: $1" run_ctest "$2" || true
  if counts=$("$python" scripts/test_results.py "build/$2/results"); then
    # shellcheck disable=SC2086
    add_results "Tests: $1" $counts
  else
    add_results "Tests: $1" 0 1 0
  fi
}

# Names the files that clang-format would change.
format_check() {
  local file changed=0
  while IFS= read -r file; do
    clang-format --dry-run --Werror "$file" 2>/dev/null || {
      echo "$file: not formatted; run clang-format -i on it"
      changed=1
    }
  done < <(find src tests fuzz bench tools \( -name '*.cc' -o -name '*.h' \) 2>/dev/null | sort)
  return "$changed"
}

# fuzz <program>: the corpus grows in the build folder; seeds may be in fuzz/corpus/<program>.
fuzz() {
  local name
  name=$(basename "$1")
  local corpus=build/fuzz/corpus/$name
  mkdir -p "$corpus" build/fuzz/findings
  local seeds=()
  [[ ! -d fuzz/corpus/$name ]] || seeds=("fuzz/corpus/$name")
  "$1" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="build/fuzz/findings/$name-" "$corpus" "${seeds[@]}"
}

# Not a step: sudo may have to ask for a password.
scripts/setup.sh
rm -rf build/test
have_format=0 have_fuzz=0
[[ "$(clang-format --version 2>/dev/null)" != *" version 14."* ]] || have_format=1
! command -v clang++ >/dev/null || have_fuzz=1
fuzz_sources=(fuzz/*_fuzz.cc)
steps_begin build/test/logs $((7 + have_format + have_fuzz * (1 + ${#fuzz_sources[@]})))

check "Layers: no include points the wrong way" "$python" scripts/check_layers.py
check "Files: length, machine paths, leftovers" "$python" scripts/check_files.py
check "Scripts: unit tests" "$python" -m unittest discover --start-directory tests/scripts --pattern '*_test.py'
((have_format == 0)) || check "Format: clang-format 14" format_check
test_build "release" release
test_build "AddressSanitizer and UndefinedBehaviorSanitizer" relassert
if ((have_fuzz == 1)); then
  if try_step "Build: fuzz targets" build fuzz fuzz/all; then
    for source in "${fuzz_sources[@]}"; do
      name=$(basename "$source" .cc)
      check "Fuzz for $fuzz_seconds s: $name" fuzz "build/fuzz/fuzz/$name"
    done
  else
    add_results "Build: fuzz targets" 0 1 0
  fi
fi

echo
echo "${steps_bold}Summary${steps_off}, after $(steps_since "$started"):"
echo -n "$summary"
((have_format == 1)) || echo "  Format: not checked, clang-format 14 is not installed (scripts/setup.sh --dev)"
((have_fuzz == 1)) || echo "  Fuzz targets: not run, clang is not installed (scripts/setup.sh --dev)"
echo "Processor: $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
"$python" scripts/test_results.py --instruction-sets build/release/results build/relassert/results
echo "$passed passed, $failed failed"
((failed == 0))
