#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/regex/script_ranges.cpp: the code points of Unicode scripts, and of the property
Alphabetic.

Python's unicodedata knows neither, so the ranges are asked from the expression engine inside the
PyPI package `tokenizers`, whose \\p{Han} is also what published tokenizers mean by it.

    tools/make_script_ranges.py > src/text/regex/script_ranges.cpp
"""
from tokenizers import Regex, pre_tokenizers

SCRIPTS = ["Han", "Hiragana", "Katakana", "Hangul", "Bopomofo", "Latin", "Greek", "Cyrillic",
           "Armenian", "Hebrew", "Arabic", "Devanagari", "Bengali", "Gurmukhi", "Gujarati",
           "Tamil", "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan",
           "Myanmar", "Georgian", "Ethiopic", "Khmer", "Mongolian", "Alphabetic"]


def ranges_of(script):
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    splitter = pre_tokenizers.Split(Regex(r"\p{" + script + "}+"), "removed")
    inside = []
    for start in range(0, len(points), 1 << 16):
        block = points[start:start + (1 << 16)]
        covered = bytearray(len(block))
        for _, (begin, end) in splitter.pre_tokenize_str("".join(map(chr, block))):
            covered[begin:end] = b"\1" * (end - begin)
        inside += [c for c, outside in zip(block, covered) if not outside]
    result = []
    for c in inside:
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Written by tools/make_script_ranges.py; do not edit.")
    print('#include "text/regex/script_ranges.hpp"\n')
    print("namespace lemma::text::regex {\nnamespace {\n\n// clang-format off")
    for script in SCRIPTS:
        ranges = ranges_of(script)
        print(f"constexpr CharRange k{script}[] = {{")
        line = "   "
        for first, last in ranges:
            item = f" {{0x{first:x}, 0x{last:x}}},"
            if len(line) + len(item) > 98:
                print(line)
                line = "   "
            line += item
        print(line + "\n};")
    print("\nstruct Script {\n  std::string_view name;\n  std::span<const CharRange> ranges;\n};")
    print("constexpr Script kScripts[] = {")
    for script in SCRIPTS:
        print(f'    {{"{script.lower()}", k{script}}},')
    print("};\n// clang-format on\n\n}  // namespace\n")
    print("std::optional<std::span<const CharRange>> script_ranges(std::string_view name) {")
    print("  for (const Script& script : kScripts) {")
    print("    if (script.name == name) return script.ranges;")
    print("  }\n  return std::nullopt;\n}\n\n}  // namespace lemma::text::regex")


if __name__ == "__main__":
    main()
