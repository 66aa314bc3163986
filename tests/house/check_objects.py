# SPDX-License-Identifier: Apache-2.0
"""No weak symbol leaks out of an object compiled for one instruction set.

An inline function or template that such an object instantiates becomes a weak symbol with wide
instructions in it, and the linker may choose it for the whole program, which then dies on a smaller
processor. So kernels' units may define nothing weak or unique but what ALLOWED explains.
"""
import argparse
import re
import subprocess
import sys
from pathlib import Path

import tree

ENDINGS = ("_avx2", "_avx512", "_amx", "_neon")
# The pointer to the personality routine of exceptions: data, the same whatever the unit's flags.
ALLOWED = re.compile(r"^DW\.ref\.__gxx_personality_v0$")
LEAKING = set("WVu")


def leaks(nm_output):
    """Names of weak or unique definitions in the output of `nm -C --defined-only`."""
    names = []
    for line in nm_output.splitlines():
        match = re.match(r"^[0-9a-fA-F]+ (\S) (.*)$", line.strip())
        if match and match.group(1) in LEAKING and not ALLOWED.match(match.group(2)):
            names.append(match.group(2))
    return names


def sources(root, endings=ENDINGS):
    return [p for p in tree.files(root) if p.suffix == ".cpp" and p.stem.endswith(endings)
            and p.parts[:1] == ("src",)]


def check(root, build):
    problems, seen = [], 0
    for source in sources(root):
        objects = sorted(Path(build).rglob(source.name + ".o"))
        if not objects and not source.stem.endswith("_neon"):
            problems.append(f"{source}: no object of it in {build}")
        for path in objects:
            seen += 1
            output = subprocess.run(["nm", "-C", "--defined-only", str(path)], check=True,
                                    capture_output=True, text=True).stdout
            problems += [f"{source}: weak symbol {name}" for name in leaks(output)]
    print(f"{seen} objects")
    if seen == 0:
        problems.append("found no object of one instruction set")
    return problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", required=True)
    sys.exit(tree.report(check(tree.ROOT, parser.parse_args().build), "objects"))
