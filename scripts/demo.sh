#!/bin/bash
# From a checkpoint to a spoken answer: installs what is missing, builds Dovetail, converts and compiles the embedded
# checkpoint, verifies the package and lets it listen to a recording. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

checkpoint=examples/gemma4-tiny-speech
recording=$checkpoint/audio/utterance00.wav
work=build/demo
package=$work/gemma4-tiny-speech-q4f16_1
dovetail=build/release/dovetail

listen() {
  "$dovetail" chat "$package" --audio "$recording" --message "Transcribe the audio." --temperature 0 >"$work/answer.txt"
}

echo "${steps_bold}Dovetail: from a checkpoint to a spoken answer${steps_off}"
# Not a step: sudo may have to ask for a password.
scripts/setup.sh
rm -rf "$work"
steps_begin "$work/logs" 6
step "Configure the build" cmake --preset release
step "Build Dovetail (minutes the first time)" \
  cmake --build build/release --parallel "$(nproc)" --target dovetail dovetail_toolchain
step "Convert $checkpoint to q4f16_1" "$dovetail" convert "$checkpoint" --quantization q4f16_1 -o "$package"
step "Compile its library" "$dovetail" compile "$package"
step "Verify every file, hash and tensor" "$dovetail" verify --deep "$package"
step "Listen to $recording" listen

cat <<END

${steps_bold}Heard:${steps_off} $(cat "$work/answer.txt")

Try next:
  $dovetail chat $package
      a conversation; /audio FILE adds a recording (there are more in $checkpoint/audio), /help says the rest
  $dovetail inspect $package
  $dovetail --help
END
