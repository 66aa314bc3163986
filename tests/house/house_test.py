# SPDX-License-Identifier: Apache-2.0
"""The structure checks find what they are for: each is shown a small tree with a fault in it."""
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_files
import check_format
import check_headers
import check_includes
import check_objects
import run_tests

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"


class Tree(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)

    def write(self, path, text):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


class Includes(Tree):
    def problems(self):
        return "\n".join(check_includes.check(self.root))

    def test_accepts_the_arrows(self):
        self.write("include/lemma/error.hpp", "#include <string>\n")
        self.write("src/base/a.hpp", '#include <fmt/format.h>\n#include "lemma/error.hpp"\n')
        self.write("src/weights/metadata.hpp", '#include "base/a.hpp"\n')
        self.write("src/text/t.cpp", '#include <pcre2.h>\n#include "weights/metadata.hpp"\n')
        self.write("src/runtime/r.cpp", '#include "base/a.hpp"\n#include "weights/metadata.hpp"\n')
        self.write("src/text/t_test.cpp", '#include <gtest/gtest.h>\n')
        self.assertEqual(self.problems(), "")

    def test_refuses_an_arrow_against_the_flow(self):
        self.write("src/runtime/r.hpp", "")
        self.write("src/state/s.cpp", '#include "runtime/r.hpp"\n')
        self.assertIn("src/state/s.cpp:1: state may not include runtime", self.problems())

    def test_keeps_the_tools_apart(self):
        self.write("src/eval/e.hpp", "")
        self.write("src/quantize/q.cpp", '#include "eval/e.hpp"\n')
        self.assertIn("quantize may not include eval", self.problems())

    def test_lets_text_see_only_the_metadata_of_weights(self):
        self.write("src/weights/checkpoint.hpp", "")
        self.write("src/text/t.cpp", '#include "weights/checkpoint.hpp"\n')
        self.assertIn("metadata of weights only", self.problems())

    def test_keeps_third_party_headers_at_home(self):
        self.write("src/model/m.cpp", "#include <CLI/CLI.hpp>\n")
        self.write("src/backend/b.cpp", "#include <immintrin.h>\n")
        self.write("src/text/t.hpp", "#include <nlohmann/json.hpp>\n")
        self.write("src/text/u.hpp", "#include <boost/any.hpp>\n")
        found = self.problems()
        self.assertIn("<CLI/CLI.hpp> belongs in src/cli/", found)
        self.assertIn("<immintrin.h> belongs in", found)
        self.assertIn("json_fwd.hpp", found)
        self.assertIn("<boost/any.hpp> is neither", found)

    def test_lets_only_tests_reach_a_header_for_tests(self):
        self.write("src/state/world.hpp", "#include <gtest/gtest.h>\n")
        self.write("src/state/s_test.cpp", '#include "state/world.hpp"\n')
        self.assertEqual(self.problems(), "")
        self.write("src/state/s.cpp", '#include "state/world.hpp"\n')
        self.assertIn("src/state/s.cpp: reaches src/state/world.hpp, a header for tests",
                      self.problems())

    def test_keeps_the_public_api_free_of_all_else(self):
        self.write("src/base/a.hpp", "")
        self.write("include/lemma/x.hpp", '#include "base/a.hpp"\n#include <fmt/format.h>\n')
        self.assertEqual(self.problems().count("only std and itself"), 2)

    def test_follows_an_outsider_through_other_headers(self):
        self.write("src/model/plan.hpp", "")
        self.write("src/cli/options.hpp", '#include "model/plan.hpp"\n')
        self.write("src/cli/run.cpp", '#include "cli/options.hpp"\n')
        self.assertIn("src/cli/run.cpp: reaches src/model/plan.hpp", self.problems())

    def test_lets_insiders_look_inside(self):
        self.write("src/model/plan.hpp", "")
        self.write("src/cli/show.cpp", '#include "model/plan.hpp"\n')
        self.write("src/cli/show_plan.cpp", '#include "model/plan.hpp"\n')
        self.assertEqual(self.problems(), "")

    def test_notices_an_unknown_folder_and_an_absent_file(self):
        self.write("src/extras/e.cpp", '#include "base/none.hpp"\n')
        self.write("src/base/b.cpp", '#include "base/none.hpp"\n')
        self.assertIn("src/extras is not in the table", self.problems())
        self.assertIn('there is no "base/none.hpp"', self.problems())


class Files(unittest.TestCase):
    def problems(self, path, text):
        return "\n".join(check_files.check_file(Path(path), text))

    def test_accepts_a_plain_file(self):
        self.assertEqual(self.problems("src/base/a.hpp", SPDX + "#pragma once\n"), "")

    def test_finds_each_fault(self):
        self.assertIn("on top", self.problems("src/base/a.cpp", "int x;\n"))
        self.assertIn("802 lines", self.problems("src/a.cpp", SPDX + "\n" * 801))
        self.assertIn("snake_case", self.problems("src/MyFile.cpp", SPDX))
        self.assertIn("names nothing", self.problems("src/base/utils.cpp", SPDX))
        self.assertIn("pragma once", self.problems("src/base/a.hpp", SPDX))
        self.assertIn("using namespace",
                      self.problems("src/a.hpp", SPDX + "#pragma once\nusing namespace std;\n"))
        self.assertIn("only under", self.problems("src/base/a.py", "# " + SPDX))
        machine_path = "/" + "wor" + "k/main"
        self.assertIn("README.md:1: a path", self.problems("README.md", f"see {machine_path}\n"))

    def test_lets_a_generated_table_be_long(self):
        text = SPDX + "// Generated by tools/make_table.py; do not edit.\n" + "\n" * 900
        self.assertEqual(self.problems("src/text/unicode_table.cpp", text), "")

    def test_leaves_relative_paths_alone(self):
        self.assertEqual(self.problems("README.md", "../shared/tmp/x a/work/b $HOME/work/x\n"), "")


class Links(Tree):
    def test_finds_a_dead_link(self):
        self.write("docs/there.md", "see [x](https://example.org/y) and [up](../docs/there.md#part)\n")
        self.write("README.md", "[a](docs/there.md) [b](docs/gone.md)\n")
        self.assertEqual(check_files.check(self.root),
                         ["README.md: links to docs/gone.md, which is not there"])


class Headers(Tree):
    def test_finds_a_header_that_leans_on_others(self):
        compiler = shutil.which("c++") or shutil.which("g++")
        self.write("src/base/good.hpp", "#pragma once\n#include <string>\nstd::string good();\n")
        self.write("src/base/bad.hpp", "#pragma once\nstd::string bad();\n")
        self.write("src/base/twice.hpp", "struct Twice {};\n")
        for _ in range(2):  # the second time through the stamps
            problems = check_headers.check(self.root, compiler, self.root / "stamps")
            self.assertEqual(len(problems), 2)
            self.assertIn("src/base/bad.hpp does not compile alone", problems[0])
            self.assertIn("src/base/twice.hpp", problems[1])

    def test_leaves_a_header_that_stands_first_in_a_source_to_the_build(self):
        self.write("src/base/own.hpp", "")
        self.write("src/base/other.hpp", "")
        self.write("src/base/own.cpp", '#include "base/own.hpp"\n#include "base/other.hpp"\n')
        self.write("src/base/own_neon.cpp", '#include "base/other.hpp"\n')
        self.assertEqual(check_headers.compiled_by_the_build(self.root),
                         {Path("src/base/own.hpp")})

    def test_tries_again_when_an_included_header_changes(self):
        self.write("src/base/a.hpp", "#pragma once\n")
        self.write("src/base/b.hpp", '#pragma once\n#include "base/a.hpp"\n')
        before = check_headers.stamp_name(self.root, Path("src/base/b.hpp"), "c++")
        self.write("src/base/a.hpp", "#pragma once\nint a();\n")
        after = check_headers.stamp_name(self.root, Path("src/base/b.hpp"), "c++")
        self.assertNotEqual(before, after)


class Objects(Tree):
    NM = ("0000000000000000 T lemma::cpu::avx2::dot(float const*)\n"
          "0000000000000000 W std::min(int, int)\n"
          "0000000000000000 u unique\n"
          "0000000000000000 V DW.ref.__gxx_personality_v0\n"
          "0000000000000010 t local\n")

    def test_names_weak_definitions(self):
        self.assertEqual(check_objects.leaks(self.NM), ["std::min(int, int)", "unique"])

    def test_misses_an_object_that_was_not_built(self):
        self.write("src/backend/cpu/kernels/dot_avx2.cpp", SPDX)
        problems = check_objects.check(self.root, self.root / "build")
        self.assertIn("no object of it", problems[0])

    @unittest.skipUnless(shutil.which("g++"), "needs a compiler")
    def test_finds_a_leak_in_a_real_object(self):
        import subprocess
        self.write("src/k_avx2.cpp", "template <typename T> T twice(T x) { return x + x; }\n"
                                     "template int twice(int);\n")
        (self.root / "build").mkdir()
        subprocess.run(["g++", "-c", "src/k_avx2.cpp", "-o", "build/k_avx2.cpp.o"], cwd=self.root,
                       check=True)
        self.assertIn("twice", "\n".join(check_objects.check(self.root, self.root / "build")))


class Format(Tree):
    @unittest.skipUnless(shutil.which("clang-format"), "needs clang-format")
    def test_finds_an_unformatted_file(self):
        self.write(".clang-format", "BasedOnStyle: Google\n")
        self.write("good.cpp", "int x = 1;\n")
        self.write("bad.cpp", "int   x=1 ;\n")
        self.assertIn("bad.cpp", "\n".join(check_format.check(self.root)))
        self.assertNotIn("good.cpp", "\n".join(check_format.check(self.root)))


class Counting(unittest.TestCase):
    def test_counts_inner_tests_and_plain_entries(self):
        results = [("passed", (90, 0, 2)), ("passed", None), ("failed", None), ("skipped", None)]
        self.assertEqual(run_tests.total(results), (91, 1, 3))

    def test_counts_a_crash_and_a_late_sanitizer_report_as_failures(self):
        self.assertEqual(run_tests.total([("failed", None), ("failed", (5, 0, 0))]), (5, 2, 0))

    def test_counts_a_failed_inner_test_once(self):
        self.assertEqual(run_tests.total([("failed", (5, 1, 0))]), (5, 1, 0))

    def test_never_runs_one_program_twice_at_a_time(self):
        programs = {"golden": "golden_test", "base": "base_test", "golden_avx2": "golden_test",
                    "house_files": "python3", "house_format": "python3"}
        self.assertEqual(run_tests.rounds(programs),
                         [["golden", "base", "house_files", "house_format"], ["golden_avx2"]])

    def test_finds_the_program_behind_an_emulator(self):
        listing = {"tests": [{"name": "k", "command": ["qemu", "-cpu", "max", "/b/neon/k_test"]},
                             {"name": "house", "command": ["/usr/bin/python3", "check.py"]},
                             {"name": "gone"}]}
        self.assertEqual(run_tests.executables(listing, "/b/neon"),
                         {"k": "k_test", "house": "python3", "gone": "gone"})

    def test_reads_googletest_reports(self):
        report = {"testsuites": [{"testsuite": [
            {"status": "RUN", "result": "COMPLETED"},
            {"status": "RUN", "result": "SKIPPED"},
            {"status": "RUN", "result": "COMPLETED", "failures": [{}]},
            {"status": "NOTRUN", "result": "SUPPRESSED"}]}]}
        self.assertEqual(run_tests.report_counts(report), (1, 1, 1))

    def test_reads_ctest_outcomes(self):
        junit = """<testsuite>
            <testcase name="a" status="run"/>
            <testcase name="b" status="fail"><failure message=""/></testcase>
            <testcase name="c" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
            <testcase name="d" status="notrun"><skipped message="Unable to find executable"/></testcase>
            </testsuite>"""
        self.assertEqual(run_tests.read_entries(junit),
                         {"a": "passed", "b": "failed", "c": "skipped", "d": "failed"})


if __name__ == "__main__":
    unittest.main()
