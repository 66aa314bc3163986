# SPDX-License-Identifier: Apache-2.0
"""Every C++ file is as the packaged clang-format would leave it."""
import shutil
import subprocess
import sys

import tree


def check(root=tree.ROOT):
    paths = [str(p) for p in tree.files(root) if p.suffix in (".cpp", ".hpp")]
    result = subprocess.run(["clang-format", "--dry-run", "-Werror", "--ferror-limit=1", *paths],
                            cwd=root, capture_output=True, text=True)
    problems = [line for line in result.stderr.splitlines() if ": error:" in line]
    if result.returncode != 0 and not problems:
        problems = [result.stderr.strip() or f"clang-format ended with {result.returncode}"]
    return problems


if __name__ == "__main__":
    if not shutil.which("clang-format"):
        tree.skip("clang-format is not installed")
    sys.exit(tree.report(check(), "format"))
