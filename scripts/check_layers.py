#!/usr/bin/env python3
"""Checks the includes under src/: a folder may use itself and the folders before it in LAYERS, nothing else.

Tests, benchmarks, fuzz targets and tools may use every folder. Model families are named only in the folders of
FAMILY_FOLDERS. Prints all violations; the exit code is 1 when there are any.
"""

import argparse
import re
import sys
from pathlib import Path

LAYERS = ["base", "contract", "media", "package", "ops", "models", "convert", "compile", "library", "engine", "cli"]

# Headers in quotes that belong to no folder of src/, and the folders that may use them.
OUTSIDE = {"dovetail_rust.h": ["media", "package"]}

FAMILY_FOLDERS = ["models", "convert", "compile"]
FAMILY = re.compile(r"gemma|llama|llava|siglip|qwen|mistral", re.IGNORECASE)

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')


def check_include(folder, name, in_quotes):
    """Why `folder` may not include `name`, or None."""
    target = name.split("/")[0]
    if "/" in name and target in LAYERS:
        if LAYERS.index(target) > LAYERS.index(folder):
            return f"{folder} may not use {target}, which comes after it"
        return None
    if not in_quotes:
        return None
    if name in OUTSIDE:
        if folder not in OUTSIDE[name]:
            return f"only {' and '.join(OUTSIDE[name])} may use {name}"
        return None
    return 'write includes of this project from src/, as "folder/file.h", and all others in <>'


def check_file(path, folder):
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        include = INCLUDE.match(line)
        if include:
            name = include.group(1) or include.group(2)
            reason = check_include(folder, name, include.group(1) is not None)
            if reason:
                yield number, f'includes "{name}": {reason}'
        family = FAMILY.search(line)
        if family and folder not in FAMILY_FOLDERS:
            yield number, f'names a model family ("{family.group(0)}"); only {", ".join(FAMILY_FOLDERS)} may'


def check_tree(root):
    """All violations under root/src, as text."""
    violations = []
    for entry in sorted((root / "src").iterdir()):
        if not entry.is_dir():
            violations.append(f"src/{entry.name}: files belong into a folder of src/")
        elif entry.name not in LAYERS:
            violations.append(f"src/{entry.name}: not a layer; the layers are {', '.join(LAYERS)}")
        else:
            for path in sorted(entry.rglob("*")):
                if path.suffix in (".h", ".cc", ".cpp", ".hpp", ".inc"):
                    for number, text in check_file(path, entry.name):
                        violations.append(f"{path.relative_to(root)}:{number}: {text}")
    return violations


def main():
    parser = argparse.ArgumentParser(description="Checks which folders under src/ include which.")
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent)
    violations = check_tree(parser.parse_args().root)
    for violation in violations:
        print(violation)
    print(f"layers: {len(violations)} violations" if violations else "layers: all includes point the right way")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
