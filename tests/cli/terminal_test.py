"""What people give `dovetail chat`. On a pseudo terminal: editing, Ctrl-C during an answer and at the prompt, Ctrl-D.
Then text from a pipe: not UTF-8, with other line ends, no text at all."""

import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time


class Terminal:
    """The program with a terminal as standard input and error, and a pipe as standard output."""

    def __init__(self, command):
        self.master, slave = pty.openpty()
        environment = dict(os.environ, TERM="dumb", LC_ALL="C.UTF-8")
        # The child's own session has the terminal, so that Ctrl-C reaches it and not the test.
        self.process = subprocess.Popen(command, stdin=slave, stderr=slave, stdout=subprocess.PIPE, env=environment,
                                        start_new_session=True, preexec_fn=acquire_terminal)
        os.close(slave)
        self.screen = ""
        self.answers = ""

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, condition, what, seconds=20):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"waited in vain for {what}; screen: {self.screen!r}; answers: {self.answers!r}")
            self.pump(0.1)

    def pump(self, seconds):
        ready, _, _ = select.select([self.master, self.process.stdout], [], [], seconds)
        if self.master in ready:
            try:
                self.screen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                time.sleep(0.05)
        if self.process.stdout in ready:
            self.answers += os.read(self.process.stdout.fileno(), 65536).decode()

    def prompts(self, count):
        self.wait_for(lambda: self.screen.count("> ") >= count, f"prompt {count}")

    def answer(self, text):
        self.wait_for(lambda: text in self.answers, f"the answer {text!r}")

    def end(self):
        self.wait_for(lambda: self.process.poll() is not None, "the end")
        return self.process.returncode


def acquire_terminal():
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def main():
    dovetail, make_fake_package = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder:
        package = str(pathlib.Path(folder) / "fake")
        subprocess.run([make_fake_package, package], check=True)
        terminal = Terminal([dovetail, "chat", package, "--temperature", "0"])
        try:
            talk(terminal)
        finally:
            if terminal.process.poll() is None:
                terminal.process.send_signal(signal.SIGKILL)
        from_a_pipe(dovetail, package, folder)
    print("ok")


def from_a_pipe(dovetail, package, folder):
    def run(*arguments, code, expected, text=b""):
        done = subprocess.run([dovetail, *arguments], input=text, capture_output=True, check=False, timeout=60)
        assert done.returncode == code, f"{arguments}: exit code {done.returncode}: {done.stderr!r}"
        assert expected in done.stderr, done.stderr[:2000]
        return done.stdout

    chat = ["chat", package, "--temperature", "0"]
    run(*chat, "--message", b"gr\xfc\xdfe", code=2, expected=b"--message: is not UTF-8 at byte 2: \\xfc")
    run(*chat, "--system", b"\xe2\x82", "--message", "hi", code=2, expected=b"--system: is not UTF-8 at byte 0")
    # A line of a conversation is refused by itself.
    shown = run(*chat, text=b"one\nt\xc3\xa4\x80\ntwo\n", code=1, expected=b"the message: is not UTF-8 at byte 3: \\x80")
    assert shown == b"one\ntwo\n", shown
    # The line ends of other systems, and blanks between a command and its file.
    shown = run(*chat, text=b"one\r\n/audio\tnowhere.wav\r\n/quit\r\nunread\r\n", code=1,
                expected=b"error: nowhere.wav: opening failed")
    assert shown == b"one\n", shown
    # What is behind a zero byte is not dropped silently.
    for line in (b"/audio nowhere.wav\0x", b"no\0"):
        shown = run(*chat, text=line + b"\nyes\n", code=1, expected=b"the line: has a zero byte at byte ")
        assert shown == b"yes\n", shown
    # A line without an end does not fill the memory, and is not taken for the end.
    for line in (b"/image " + b"a" * (17 << 20), b"a" * (16 << 20) + b"\ra"):
        shown = run(*chat, text=line + b"\nyes", code=1,
                    expected=b"error: the line: is too long (expected at most 16.8 MB)")
        assert shown == b"yes\n", shown
    with subprocess.Popen([dovetail, *chat], stdin=os.open(folder, os.O_RDONLY), stderr=subprocess.PIPE) as process:
        _, messages = process.communicate(timeout=60)
    assert process.returncode == 1, process.returncode
    assert b"error: standard input: reading failed: Is a directory" in messages, messages
    text = pathlib.Path(folder) / "text"
    text.write_bytes(b"hello " * 9 + b"\xff")
    run("eval", "perplexity", package, text, code=1, expected=b"text: is not UTF-8 at byte 54: \\xff")
    # Nor is the name of a file always.
    named = os.fsencode(text) + b"\xff"
    pathlib.Path(os.fsdecode(named)).write_bytes(b"hello " * 9)
    shown = run("eval", "perplexity", package, named, "--json", code=0, expected=b"")
    assert json.loads(shown)["text"] == f"{text}\ufffd", shown


def talk(terminal):
    terminal.prompts(1)
    terminal.type("héllö €\n")
    terminal.answer("héllö €\n")
    terminal.prompts(2)

    # Ctrl-C stops the answer and not the program.
    terminal.type("%\n")
    terminal.answer("%%%")
    terminal.type("\x03")
    terminal.wait_for(lambda: "(stopped)" in terminal.screen, "the answer to stop", seconds=2)
    terminal.prompts(3)
    shown = terminal.answers.count("%")
    assert shown < 200, f"{shown} tokens were shown, so nothing was stopped"

    # At the prompt it drops the line, however early it comes.
    terminal.type("half a li\x03")
    terminal.prompts(4)
    terminal.type("next\n")
    terminal.answer("\nnext\n")
    terminal.prompts(5)
    assert "half" not in terminal.answers

    # Arrow up brings the last line back.
    terminal.type("\x1b[A!?\x08\x08\n")
    terminal.wait_for(lambda: terminal.answers.count("next\n") == 2, "the line from the history")
    terminal.prompts(6)

    # What is typed before its prompt is there waits unchanged, Ctrl-D too.
    terminal.type("ahead\nof time\n\x04")
    code = terminal.end()
    terminal.answer("\nahead\nof time\n")
    assert code == 0, f"exit code {code}"
    assert "> " not in terminal.answers, "the prompt must not be on stdout"


if __name__ == "__main__":
    main()
