#!/bin/bash
# Makes the compressed recordings beside this file. Needs python3, flac, lame, oggenc, opusenc and ffmpeg.
# Left: 440 Hz, amplitude 0.4. Right: a chirp from 300 to 1800 Hz, amplitude 0.3. Mono files hold the left one.
set -euo pipefail
out=$(cd "$(dirname "$0")" && pwd)
cd "$(mktemp -d)"
python3 - <<'PY'
import math, struct, wave
def write(name, rate, channels, seconds):
    with wave.open(name, "wb") as f:
        f.setnchannels(channels); f.setsampwidth(2); f.setframerate(rate)
        for i in range(int(rate * seconds)):
            t = i / rate
            frame = [0.4 * math.sin(2 * math.pi * 440 * t),
                     0.3 * math.sin(2 * math.pi * (300 * t + 750 / seconds * t * t))]
            f.writeframesraw(struct.pack("<%dh" % channels, *[round(x * 32767) for x in frame[:channels]]))
write("s44.wav", 44100, 2, 0.25)
write("m16.wav", 16000, 1, 0.25)
write("m48.wav", 48000, 1, 0.2)
PY
flac --silent -8 --no-padding -f s44.wav -o "$out/stereo-44k.flac"
flac --silent -8 --no-padding -f m16.wav -o "$out/mono-16k.flac"
lame --quiet -b 64 --resample 44.1 s44.wav "$out/stereo-44k.mp3"
lame --quiet -b 32 -t m16.wav "$out/mono-16k-without-header.mp3"
lame --quiet -V6 --add-id3v2 --tt Tone m48.wav "$out/mono-48k-id3.mp3"
oggenc -Q -q 0 s44.wav -o "$out/stereo-44k.ogg"
oggenc -Q -q 0 m16.wav -o "$out/mono-16k.ogg"
ffmpeg -v error -y -i m16.wav -c:a flac -f ogg "$out/mono-16k-flac.oga"
opusenc --quiet m48.wav "$out/mono-48k.opus"
ffmpeg -v error -y -i m16.wav -c:a aac -b:a 16k "$out/mono-16k.m4a"
ffmpeg -v error -y -i m16.wav -c:a aac -b:a 16k "$out/mono-16k.aac"
ffmpeg -v error -y -i m16.wav -c:a mp2 -b:a 16k "$out/mono-16k.mp2"
