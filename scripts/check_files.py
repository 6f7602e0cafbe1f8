#!/usr/bin/env python3
"""Checks every source file, script and page: at most 800 lines, no path of one particular machine, nothing left to do,
and no link to a page or folder of the project that is not there.

Test data, examples and lock files are not looked at. Prints all violations; the exit code is 1 when there are any.
"""

import argparse
import re
import sys
from pathlib import Path

MAX_LINES = 800
SUFFIXES = {".cc", ".h", ".rs", ".py", ".sh", ".cmake", ".md", ".toml", ".txt", ".json", ".js", ".ts", ".html", ".css"}
NAMES = {"run", ".clang-format", ".gitignore"}
SKIPPED_FOLDERS = {".git", ".venv", "build", "target", "__pycache__", "node_modules"}
SKIPPED_PATHS = ("tests/data/", "examples/", "fuzz/corpus/")

MACHINE_PATH = re.compile(r"(?<![\w.~$})/-])/(?:work|root|home|tmp)(?:/|\b(?![\w-]))")
LEFTOVER = re.compile(r"\b(?:TO[D]O|FIX[M]E|XX[X])\b")

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)#\s]+)")


def checked_files(root, folder=None):
    for path in sorted((folder or root).iterdir()):
        relative = path.relative_to(root).as_posix()
        if path.is_symlink() or relative.startswith(SKIPPED_PATHS):
            continue
        if path.is_dir():
            if path.name not in SKIPPED_FOLDERS:
                yield from checked_files(root, path)
        elif path.suffix in SUFFIXES or path.name in NAMES:
            yield path


def check_text(text):
    """(line number, what is wrong) for each violation in one file."""
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        for pattern, what in ((MACHINE_PATH, "path of one particular machine"), (LEFTOVER, "leftover")):
            found = pattern.search(line)
            if found:
                yield number, f"{what}: {found.group(0)}"
    if len(lines) > MAX_LINES:
        yield len(lines), f"{len(lines)} lines, the maximum is {MAX_LINES}"


def check_tree(root):
    violations = []
    for path in checked_files(root):
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            violations.append(f"{path.relative_to(root)}: not UTF-8 ({error.reason} at byte {error.start})")
            continue
        violations += [f"{path.relative_to(root)}:{number}: {what}" for number, what in check_text(text)]
        if path.suffix == ".md":
            violations += [
                f"{path.relative_to(root)}: links to {link}, which is not there"
                for link in LINK.findall(text)
                if not (path.parent / link).exists()
            ]
    return violations


def main():
    parser = argparse.ArgumentParser(description="Checks the length and the text of the project's files.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    violations = check_tree(parser.parse_args().root)
    for violation in violations:
        print(violation)
    print(f"files: {len(violations)} violations" if violations else "files: all in order")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
