# SPDX-License-Identifier: Apache-2.0
"""Holds #includes against the arrows between folders (docs/design.md, "The house").

A source file may include std and system headers, include/lemma, its own folder, and the folders
that the table allows. Third-party headers have home folders. The commands that show the public API
from outside may reach nothing of the engine but include/lemma, through any chain of includes.
"""
import sys
from pathlib import Path

import tree

# folder -> folders it may include; what those may include comes along.
ARROWS = {
    "base": [],
    "weights": ["base"],
    "algorithm": ["base"],
    "text": ["weights"],
    "state": ["algorithm"],
    "backend": ["state", "weights"],
    "model": ["backend"],
    "runtime": ["model", "text"],
    "serve": ["runtime"],
    "train": ["runtime"],
    "quantize": ["runtime"],
    "eval": ["runtime"],
    "cli": ["runtime", "serve", "train", "quantize", "eval"],
}

# Of weights, text reads the metadata only (its tests may open whole checkpoints).
TEXT_FROM_WEIGHTS = {"weights/metadata.hpp"}

# src/cli files that may look inside the engine, by the part of the name before the first '_' or
# '.': show_plan.cpp belongs to show; src/cli/models belongs to pull. All other files there, and all
# of src/serve, are outsiders.
CLI_INSIDERS = {"show", "check", "explain", "capture", "logits", "bench", "train", "quantize",
                "imatrix", "eval", "pull"}
# What an outsider may reach: the public API, the ground floor (UTF-8, log), and its like.
OUTSIDER_REACH = ("include/lemma/", "src/base/", "src/cli/", "src/serve/")

# first part of an angle include -> where it may stand (path prefixes).
THIRD_PARTY = {
    "fmt": ["src/", "tests/", "bench/"],
    "nlohmann": ["src/", "tests/", "bench/"],  # json.hpp in .cpp files only, see below
    "gtest": ["tests/"],  # and *_test.cpp
    "gmock": ["tests/"],
    "benchmark": ["bench/"],
    "CLI": ["src/cli/"],
    "histedit.h": ["src/cli/"],
    "editline": ["src/cli/"],
    "pcre2.h": ["src/text/"],
    "utf8proc.h": ["src/text/"],
    "xxhash.h": ["src/base/"],
    "curl": ["src/cli/models/"],
    "openssl": ["src/cli/models/"],
    "httplib.h": ["src/serve/"],
    "sqlite3.h": ["src/serve/"],
    "prometheus": ["src/serve/"],
    "immintrin.h": ["src/backend/cpu/kernels/", "bench/"],
    "x86intrin.h": ["src/backend/cpu/kernels/"],
    "arm_neon.h": ["src/backend/cpu/kernels/"],
}

# Headers of the C library and the kernel; what has a folder in front (sys/, linux/) is one too.
SYSTEM = {"cpuid.h", "fcntl.h", "poll.h", "pthread.h", "sched.h", "signal.h", "spawn.h",
          "termios.h", "unistd.h", "errno.h", "netdb.h"}


def reach(folder):
    """The folder and all that it may include, taken together."""
    allowed, todo = set(), [folder]
    while todo:
        current = todo.pop()
        if current not in allowed:
            allowed.add(current)
            todo += ARROWS[current]
    return allowed


def is_test(path):
    return path.name.endswith(("_test.cpp", "_fuzz.cpp"))


def check_quoted(path, target):
    """What is wrong with `#include "target"` in `path`, or None."""
    parts = path.parts
    top = target.split("/")[0]
    if top == "lemma":
        return None
    if parts[0] == "include":
        return "the public API includes only std and itself"
    if parts[0] != "src":
        return None  # tests and benchmarks look where they like
    if "/" not in target:
        return None if is_test(path) else "project headers are named from src/: \"folder/file.hpp\""
    folder = parts[1]
    if folder not in ARROWS:
        return f"src/{folder} is not in the table of folders"
    if top not in ARROWS:
        return f"'{top}' is not a folder of src"
    if top not in reach(folder):
        return f"{folder} may not include {top}"
    if folder == "text" and top == "weights" and target not in TEXT_FROM_WEIGHTS \
            and not is_test(path):
        return "text reads the metadata of weights only"
    return None


def check_angle(path, target):
    """What is wrong with `#include <target>` in `path`, or None."""
    top = target.split("/")[0]
    if path.parts[0] == "include" and ("/" in target or "." in target):
        return "the public API includes only std and itself"
    if top in THIRD_PARTY:
        homes = THIRD_PARTY[top]
        if top in ("gtest", "gmock") and (is_test(path) or path.suffix == ".hpp"):
            return None  # a header for tests; check() sees to it that only tests reach it
        if not str(path).startswith(tuple(homes)):
            return f"<{target}> belongs in {', '.join(homes)}"
        if target == "nlohmann/json.hpp" and path.suffix == ".hpp":
            return "the full JSON header belongs in .cpp files; take nlohmann/json_fwd.hpp"
        return None
    if "/" not in target and "." not in target:
        return None  # std
    if top in ("sys", "linux", "arpa", "netinet", "asm") or target in SYSTEM:
        return None
    return f"<{target}> is neither std nor in this check's tables"


def is_outsider(path):
    if path.parts[:1] != ("src",) or is_test(path) or path.suffix not in (".cpp", ".hpp"):
        return False
    if path.parts[1] == "serve":
        return True
    if path.parts[1:3] == ("cli", "models"):
        return False
    stem = path.name.split(".")[0].split("_")[0]
    return path.parts[1] == "cli" and stem not in CLI_INSIDERS


def includes_gtest(root, path):
    return any(target.split("/")[0] in ("gtest", "gmock")
               for _, quoted, target in tree.includes(tree.read(root, path)) if not quoted)


def check(root=tree.ROOT):
    problems = []
    test_headers = {p for p in tree.files(root) if p.suffix == ".hpp" and includes_gtest(root, p)}
    for path in tree.files(root):
        if path.suffix not in (".cpp", ".hpp") or path.parts[0] not in ("src", "include", "tests",
                                                                       "bench"):
            continue
        for line, quoted, target in tree.includes(tree.read(root, path)):
            problem = (check_quoted if quoted else check_angle)(path, target)
            if problem is None and quoted and tree.resolve(root, path, target) is None:
                problem = f'there is no "{target}"'
            if problem:
                problems.append(f"{path}:{line}: {problem}")
        if path.suffix == ".cpp" and path.parts[0] == "src" and not is_test(path):
            problems += [f"{path}: reaches {reached}, a header for tests"
                         for reached in sorted(tree.closure(root, path) & test_headers)]
        if is_outsider(path):
            for reached in sorted(tree.closure(root, path)):
                if not str(reached).startswith(OUTSIDER_REACH):
                    problems.append(f"{path}: reaches {reached}; it may use nothing of the engine "
                                    "but include/lemma")
    return problems


if __name__ == "__main__":
    sys.exit(tree.report(check(), "includes"))
