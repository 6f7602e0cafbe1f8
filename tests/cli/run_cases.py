"""Runs the end-to-end cases in tests/cli/cases: text files that read like a terminal session.

    # a comment
    package NAME                  make a package of the fake library in the folder NAME
    edit "FROM" => "TO"           … with these bytes of its library replaced; comes before `package`
    model NAME QUANTIZATION [EXAMPLE]
                                  convert and compile an example (gemma4-tiny-speech; once per run, then copied)
    recording NAME SAMPLES VALUE  write a 16 kHz WAV file of that many equal samples (0 to 1)
    picture NAME ROW/ROW          write a BMP picture with a pixel for each letter, which the fake model reads
    write NAME "BYTES"            write a file; BYTES may have escapes such as \\x00
    replace FILE "FROM" => "TO"   change a text file
    copy FROM TO / link NAME TARGET / delete FILE / truncate FILE BYTES / flip FILE BYTE
    $ dovetail ARGUMENTS          run it; NAME=VALUE in front sets an environment variable
    < TEXT                        a line of its standard input
    TEXT                          a line of its standard output; lines must agree exactly and in number
    ~ TEXT                        a line of its standard output that contains TEXT
    ! TEXT                        standard error contains TEXT
    * COUNT TEXT                  standard error contains TEXT so many times
    ? CODE                        its exit code; 0 when not given

The case's folder has links: audio (recordings of an example), shapes (pictures of an example), pictures (of every
kind). Indentation of two blanks is taken off, empty lines outside of the output are ignored.
"""

import argparse
import os
import pathlib
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import time

TIMEOUT_SECONDS = 300


class CaseError(Exception):
    """A case that failed, or is not written as it should be."""


class Command:
    """One command of a case and what is expected of it."""

    def __init__(self, words, line):
        self.words = words
        self.line = line
        self.stdin = []
        self.stdout = []
        self.stderr = []
        self.stderr_counts = []
        self.code = 0


class Runner:
    def __init__(self, arguments, work):
        self.dovetail = arguments.dovetail
        self.make_fake_package = arguments.make_fake_package
        self.examples = arguments.examples
        self.links = {"audio": arguments.examples / "gemma4-tiny-speech/audio",
                      "shapes": arguments.examples / "llava-tiny-shapes/pictures",
                      "pictures": arguments.pictures}
        self.work = pathlib.Path(work)
        self.models = {}

    def run_case(self, path):
        folder = self.work / path.stem
        folder.mkdir()
        for name, target in self.links.items():
            (folder / name).symlink_to(target)
        edits = []
        command = None
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            kind, _, rest = line.partition(" ")
            if line.startswith("$ "):
                self.finish(command, folder)
                command = Command(shlex.split(rest), number)
            elif command is not None and kind == "<":
                command.stdin.append(rest)
            elif command is not None and kind == "!":
                command.stderr.append(rest)
            elif command is not None and kind == "*":
                count, _, text = rest.partition(" ")
                command.stderr_counts.append((int(count), text))
            elif command is not None and kind == "?":
                command.code = int(rest)
                self.finish(command, folder)
                command = None
            elif command is not None:
                command.stdout.append(line)
            elif line.strip() and kind != "#":
                edits = self.set_up(kind, rest, edits, folder, number)
        self.finish(command, folder)

    def set_up(self, kind, rest, edits, folder, number):
        """Does what a line before a command says; returns the edits that wait for a package."""
        words = shlex.split(rest) if kind != "edit" else []
        if kind == "edit":
            old, _, new = rest.partition(" => ")
            return edits + [old, new]
        if kind == "package":
            subprocess.run([self.make_fake_package, str(folder / words[0]), *edits], check=True)
            return []
        if kind == "model":
            shutil.copytree(self.model(*words[1:]), folder / words[0])
        elif kind == "recording":
            write_wav(folder / words[0], int(words[1]), float(words[2]))
        elif kind == "picture":
            write_picture(folder / words[0], words[1].split("/"))
        elif kind == "write":
            (folder / words[0]).parent.mkdir(parents=True, exist_ok=True)
            (folder / words[0]).write_bytes(words[1].encode().decode("unicode_escape").encode("latin-1"))
        elif kind == "replace":
            replace(folder / words[0], words[1], words[3])
        elif kind == "copy":
            shutil.copy(folder / words[0], folder / words[1])
        elif kind == "link":
            (folder / words[0]).symlink_to(words[1])
        elif kind == "delete":
            (folder / words[0]).unlink()
        elif kind == "truncate":
            os.truncate(folder / words[0], int(words[1]))
        elif kind == "flip":
            flip(folder / words[0], int(words[1]))
        else:
            raise CaseError(f"line {number}: unknown line: {kind} {rest}")
        return edits

    def model(self, quantization, example="gemma4-tiny-speech"):
        key = example, quantization
        if key not in self.models:
            package = self.work / f"model-{example}-{quantization}"
            checkpoint = str(self.examples / example)
            for step in (["convert", checkpoint, "--quantization", quantization, "-o", str(package)],
                         ["compile", str(package)]):
                done = subprocess.run([self.dovetail, *step], capture_output=True, text=True, check=False,
                                      timeout=TIMEOUT_SECONDS)
                if done.returncode != 0:
                    raise CaseError(f"dovetail {step[0]} failed: {done.stderr}")
            self.models[key] = package
        return self.models[key]

    def finish(self, command, folder):
        if command is None:
            return
        words = list(command.words)
        environment = dict(os.environ)
        while "=" in words[0]:
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if words[0] != "dovetail":
            raise CaseError(f"line {command.line}: only dovetail can be run")
        done = subprocess.run([self.dovetail, *words[1:]], cwd=folder, env=environment, check=False,
                              input="".join(line + "\n" for line in command.stdin).encode(),
                              capture_output=True, timeout=TIMEOUT_SECONDS)
        stdout = done.stdout.decode("utf-8").splitlines()
        stderr = done.stderr.decode("utf-8")
        problems = []
        if done.returncode != command.code:
            problems.append(f"exit code: expected {command.code}, got {done.returncode}")
        expected = list(command.stdout)
        while expected and not expected[-1].strip():
            expected.pop()
        if not same_lines(expected, stdout):
            problems.append("stdout: expected\n" + indented(expected) + "\n  got\n" + indented(stdout))
        problems += [f"stderr lacks: {text}" for text in command.stderr if text not in stderr]
        problems += [f"stderr has {stderr.count(text)} times, not {count}: {text}"
                     for count, text in command.stderr_counts if stderr.count(text) != count]
        if problems:
            shown = indented(stderr.splitlines())
            raise CaseError(f"line {command.line}: {shlex.join(command.words)}\n  " + "\n  ".join(problems) +
                            f"\n  stderr was\n{shown}")


def same_lines(expected, actual):
    def same(want, have):
        return want[2:] in have if want.startswith("~ ") else want == have
    return len(expected) == len(actual) and all(map(same, expected, actual))


def indented(lines):
    return "\n".join("    " + line for line in lines)


def write_wav(path, count, value):
    data = struct.pack("<h", round(value * 32767)) * count
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(data), b"WAVE", b"fmt ", 16, 1, 1, 16000, 32000, 2, 16,
                         b"data", len(data))
    path.write_bytes(header + data)


def write_picture(path, rows):
    """A BMP whose pixels are (10 * the letter's place in the alphabet + 5, 0, 0)."""
    stored = b""
    for row in reversed(rows):
        pixels = b"".join(bytes([0, 0, 10 * (ord(letter) - ord("a")) + 5]) for letter in row)
        stored += pixels + bytes(-len(pixels) % 4)
    path.write_bytes(struct.pack("<2sIIIIiiHHIIiiII", b"BM", 54 + len(stored), 0, 54, 40, len(rows[0]), len(rows), 1, 24,
                                 0, len(stored), 0, 0, 0, 0) + stored)


def replace(path, old, new):
    text = path.read_text(encoding="utf-8")
    if old not in text:
        raise CaseError(f"{path.name} does not have {old}")
    path.write_text(text.replace(old, new), encoding="utf-8")


def flip(path, at):
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dovetail", required=True)
    parser.add_argument("--make-fake-package", required=True)
    parser.add_argument("--examples", type=pathlib.Path, required=True)
    parser.add_argument("--pictures", type=pathlib.Path, required=True)
    parser.add_argument("cases", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory(prefix="dovetail-cases-") as work:
        runner = Runner(arguments, work)
        for path in arguments.cases:
            start = time.monotonic()
            try:
                runner.run_case(path)
                verdict = "ok"
            except (CaseError, OSError, subprocess.SubprocessError) as error:
                verdict = f"FAILED\n  {error}"
                failed += 1
            print(f"{path.stem}: {verdict} ({time.monotonic() - start:.1f} s)", flush=True)
    print(f"{len(arguments.cases)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
