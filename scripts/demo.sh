#!/bin/bash
# From checkpoints to answers: installs what is missing, builds Dovetail, converts and compiles two embedded checkpoints,
# verifies the packages, lets one listen to a recording and the other look at a picture. Safe to run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/steps.sh
source scripts/steps.sh

speech_checkpoint=examples/gemma4-tiny-speech
shapes_checkpoint=examples/llava-tiny-shapes
recording=$speech_checkpoint/audio/utterance00.wav
picture=$shapes_checkpoint/pictures/picture3.png
work=build/demo
speech=$work/gemma4-tiny-speech-q4f16_1
shapes=$work/llava-tiny-shapes-q4f16_1
dovetail=build/release/dovetail

# make_package <checkpoint> <package>
make_package() {
  "$dovetail" convert "$1" --quantization q4f16_1 -o "$2" && "$dovetail" compile "$2"
}

verify() {
  "$dovetail" verify --deep "$speech" && "$dovetail" verify --deep "$shapes"
}

listen() {
  "$dovetail" chat "$speech" --audio "$recording" --message "Transcribe the audio." --temperature 0 >"$work/heard.txt"
}

look() {
  "$dovetail" chat "$shapes" --image "$picture" --message "Describe the picture." --temperature 0 >"$work/seen.txt"
}

echo "${steps_bold}Dovetail: from checkpoints to answers${steps_off}"
# Not a step: sudo may have to ask for a password.
scripts/setup.sh
rm -rf "$work"
steps_begin "$work/logs" 7
step "Configure the build" cmake --preset release
step "Build Dovetail (minutes the first time)" \
  cmake --build build/release --parallel "$(nproc)" --target dovetail dovetail_toolchain
step "Convert and compile $speech_checkpoint (q4f16_1)" make_package "$speech_checkpoint" "$speech"
step "Convert and compile $shapes_checkpoint (q4f16_1)" make_package "$shapes_checkpoint" "$shapes"
step "Verify every file, hash and tensor of both" verify
step "Listen to $recording" listen
step "Look at $picture" look

cat <<END

${steps_bold}Heard:${steps_off} $(cat "$work/heard.txt")
${steps_bold}Seen:${steps_off}  $(cat "$work/seen.txt")

Try next:
  $dovetail chat $speech
      a conversation; /audio FILE adds a recording (there are more in $speech_checkpoint/audio), /help says the rest
  $dovetail chat $shapes
      the same with /image FILE (pictures are in $shapes_checkpoint/pictures). It knows three questions: Describe the
      picture. What is the background? How many shapes?
  $dovetail inspect $shapes
  $dovetail --help
END
