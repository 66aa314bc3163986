# SPDX-License-Identifier: Apache-2.0
"""Every header compiles alone.

A header that some source includes before anything else is compiled alone by the build itself: that
is why a source includes its own header first. Each other header becomes a one-header source for the
compiler's syntax pass. One that passed is not tried again until it, a project header that it
includes, the flags or the compiler change: the stamp folder holds an empty file per combination.
"""
import argparse
import hashlib
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
         "-Wno-missing-field-initializers", "-Isrc", "-Iinclude", "-Itests/main", "-x", "c++", "-"]
# Headers of one instruction set say so in their names.
ISA_FLAGS = {"_avx2": ["-mavx2", "-mfma", "-mf16c"],
             "_avx512": ["-mavx2", "-mfma", "-mf16c", "-mavx512f", "-mavx512bw", "-mavx512vl",
                         "-mavx512dq", "-mavx512vnni"]}
OTHER_MACHINES = ("_neon",)


def flags_of(path):
    for ending, flags in ISA_FLAGS.items():
        if path.stem.endswith(ending):
            return flags + FLAGS
    return FLAGS


def compiled_by_the_build(root):
    """Headers that stand first in a source which every build with tests compiles."""
    first = set()
    for path in tree.files(root):
        if path.suffix == ".cpp" and path.parts[0] in ("src", "tests") \
                and not path.stem.endswith(OTHER_MACHINES):
            found = tree.includes(tree.read(root, path))
            if found and found[0][1]:
                first.add(tree.resolve(root, path, found[0][2]))
    return first


def headers(root):
    return [p for p in tree.files(root) if p.suffix == ".hpp"
            and not p.stem.endswith(OTHER_MACHINES)]


def stamp_name(root, path, compiler):
    digest = hashlib.sha256(" ".join([compiler, *flags_of(path)]).encode())
    for part in sorted(tree.closure(root, path)):
        digest.update(str(part).encode() + b"\0" + Path(root, part).read_bytes() + b"\0")
    return digest.hexdigest()


def compile_alone(root, path, compiler):
    """The compiler's complaints, or ''."""
    line = f'#include "{Path(root, path)}"\n'
    result = subprocess.run([compiler, *flags_of(path)], cwd=root, input=line * 2, text=True,
                            capture_output=True)
    return "" if result.returncode == 0 else f"{path} does not compile alone:\n{result.stderr}"


def check(root, compiler, stamps):
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    stamps.mkdir(parents=True, exist_ok=True)

    def one(path):
        stamp = stamps / stamp_name(root, path, compiler + version.stdout)
        if stamp.exists():
            return ""
        problem = compile_alone(root, path, compiler)
        if not problem:
            stamp.touch()
        return problem

    found = headers(root)
    first = compiled_by_the_build(root)
    left = [p for p in found if p not in first]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [p for p in pool.map(one, left) if p]
    print(f"{len(found)} headers, {len(found) - len(left)} of them first in a source of the build")
    return problems if found else ["found no header to compile"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--stamps", required=True, type=Path)
    args = parser.parse_args()
    sys.exit(tree.report(check(tree.ROOT, args.compiler, args.stamps), "headers"))
