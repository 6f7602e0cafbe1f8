"""Standard streams that are full or closed, and signals: nothing is lost silently, nothing is left behind."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def run(arguments, folder, closed=(), **streams):
    def close():
        for number in closed:
            os.close(number)
    return subprocess.run(arguments, cwd=folder, preexec_fn=close, check=False, timeout=60, **streams)


def lost_output(dovetail, checkpoint, folder):
    plan = [dovetail, "plan", checkpoint, "--quantization", "q4f16_1"]
    for arguments in (plan, [*plan, "--json"], [dovetail, "--help"]):
        with open("/dev/full", "wb") as full:
            done = run(arguments, folder, stdout=full, stderr=subprocess.PIPE)
        check(done.returncode == 1, f"{arguments}: exit code {done.returncode} with a full disk")
        check(b"standard output: writing failed" in done.stderr, done.stderr)
    done = run(plan, folder, closed=[1], stderr=subprocess.PIPE)
    check(done.returncode == 1 and b"standard output" in done.stderr, done.stderr)


def closed_streams(dovetail, checkpoint, folder):
    """The numbers of closed streams must not be given to the files of the package."""
    convert = [dovetail, "convert", checkpoint, "--quantization", "q4f16_1", "-o"]
    check(run([*convert, "open"], folder, stdout=subprocess.DEVNULL).returncode == 0, "convert")
    run([*convert, "closed"], folder, closed=[0, 1, 2])
    for file in (folder / "open").iterdir():
        check(file.read_bytes() == (folder / "closed" / file.name).read_bytes(), f"{file.name} differs")


def no_colours(dovetail, folder):
    """Messages on a terminal are coloured unless NO_COLOR says otherwise."""
    for no_color in (None, "1"):
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("NO_COLOR", None)
        if no_color:
            environment["NO_COLOR"] = no_color
        main, terminal = os.openpty()
        run([dovetail, "chat", "nowhere", "--message", "hi"], folder, stderr=terminal, env=environment)
        os.close(terminal)
        shown = os.read(main, 4096)
        os.close(main)
        check((b"\x1b[" in shown) == (no_color is None), shown)


def write_compiler(folder, name, text):
    compiler = folder / name
    compiler.write_text("#!/bin/sh\n" + text)
    compiler.chmod(0o755)
    return {**os.environ, "CXX": str(compiler)}


def stopped(arguments, folder, signals, environment, ignored=None):
    """Sends the signals once the compiler has made the file `started`. → messages"""
    def set_signals():
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    with subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment,
                          preexec_fn=set_signals) as process:
        end = time.monotonic() + 20
        while not (folder / "started").exists() and time.monotonic() < end:
            time.sleep(0.01)
        (folder / "started").unlink()
        if ignored:
            process.send_signal(ignored)
            time.sleep(0.3)
            check(process.poll() is None, f"{arguments} ended by {ignored}, which was ignored")
        for number in signals:
            process.send_signal(number)
        _, messages = process.communicate(timeout=20)
    check(process.returncode == 1, f"{arguments}: exit code {process.returncode} after {signals}")
    return messages


def stopped_compilation(dovetail, folder):
    slow = write_compiler(folder, "slow", '[ "$1" = --version ] && echo slow 1 && exit 0\n: > started\nsleep 30\n')
    compile_package = [dovetail, "compile", "package"]
    # A terminal that closes sends its signal twice.
    for signals, ignored in (([signal.SIGINT], None), ([signal.SIGHUP, signal.SIGHUP], None),
                             ([signal.SIGTERM], signal.SIGHUP)):
        messages = stopped(compile_package, folder, signals, slow, ignored)
        check(b"compilation stopped" in messages, messages)
        check(not (folder / "package" / "lib").exists(), "something was left behind")
    silent = write_compiler(folder, "silent", ": > started\nsleep 30\n")
    for arguments in (compile_package, [dovetail, "doctor"]):
        messages = stopped(arguments, folder, [signal.SIGINT], silent)
        check(b"error: stopped" in messages, messages)


def peculiar_folder(dovetail, folder):
    """A package whose name looks like an option and paints the terminal."""
    quick = write_compiler(folder, "quick", """[ "$1" = --version ] && echo quick 1 && exit 0
for word; do
  case "$word" in -pk*) exit 1 ;; esac
  [ "$last" = -o ] && echo library > "$word"
  last=$word
done
""")
    (folder / "package").rename(folder / "-pk\n\x1b[31m")
    done = run([dovetail, "compile", "--", "-pk\n\x1b[31m"], folder, env=quick, stderr=subprocess.PIPE)
    check(done.returncode == 0, done.stderr)
    check(b"\x1b" not in done.stderr and b"wrote -pk" in done.stderr and done.stderr.count(b"\n") == 2, done.stderr)


def main():
    dovetail, checkpoint = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="dovetail-streams-") as name:
        folder = pathlib.Path(name)
        lost_output(dovetail, checkpoint, folder)
        closed_streams(dovetail, checkpoint, folder)
        no_colours(dovetail, folder)
        run([dovetail, "convert", checkpoint, "--quantization", "q4f16_1", "-o", "package"], folder,
            stdout=subprocess.DEVNULL)
        stopped_compilation(dovetail, folder)
        peculiar_folder(dovetail, folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
