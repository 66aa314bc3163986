# SPDX-License-Identifier: Apache-2.0
"""The project's files and their includes, as the structure checks see them."""
import os
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED_FOLDERS = {".git", ".cache", "build", "__pycache__"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def files(root=ROOT):
    """Every file of the tree as a path relative to root, sorted; build output left out."""
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [s for s in subfolders if s not in SKIPPED_FOLDERS]
        found += [Path(folder, name).relative_to(root) for name in names]
    return sorted(found)


def read(root, path):
    return Path(root, path).read_text(encoding="utf-8", errors="replace")


def includes(text):
    """(line number, is_quoted, target) of each #include."""
    result = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            result.append((number, match.group(1) == '"', match.group(2)))
    return result


def resolve(root, path, target):
    """The project file that `#include "target"` in `path` means, relative to root, or None."""
    for base in (Path(path).parent, Path("src"), Path("include"), Path("tests/main"),
                 Path("tests/golden"), Path("tests/stack")):
        candidate = Path(os.path.normpath(base / target))
        if Path(root, candidate).is_file():
            return candidate
    return None


def closure(root, path):
    """The project files that `path` includes, directly or not, itself among them."""
    seen, todo = set(), [Path(path)]
    while todo:
        current = todo.pop()
        if current in seen:
            continue
        seen.add(current)
        for _, quoted, target in includes(read(root, current)):
            found = resolve(root, current, target) if quoted else None
            if found:
                todo.append(found)
    return seen


def report(problems, what):
    """Prints the problems and returns the exit status."""
    for problem in problems:
        print(problem)
    print(f"{what}: {len(problems)} problem{'' if len(problems) == 1 else 's'}")
    return 1 if problems else 0


def skip(reason):
    """Skips aloud; where CI=true promises everything that is needed, a skip is a failure."""
    print(f"skipped: {reason}")
    sys.exit(1 if os.environ.get("CI") == "true" else 77)
