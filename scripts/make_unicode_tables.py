#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes data/text/unicode_tables.cpp from the Unicode data that comes with Python: run it when that is newer.

    scripts/make_unicode_tables.py > data/text/unicode_tables.cpp
"""

import sys
import unicodedata

LAST = 0x10FFFF
LINE = 116


def kind(code):
    """The letter that data/text/unicode.h knows a character's class by."""
    character = chr(code)
    category = unicodedata.category(character)
    # Characters that Unicode gives the property White_Space; Python has the separators of ASCII too.
    if character.isspace() and not 0x1C <= code <= 0x1F:
        return "s"
    if category == "Mn":
        return "m"
    # What is not assigned is no control character: texts of a later Unicode keep it.
    if category == "Cn":
        return "o"
    return {"L": "l", "N": "n", "P": "p", "C": "c"}.get(category[0], "o")


def kind_runs():
    runs, before = [], None
    for code in range(LAST + 1):
        now = kind(code)
        if now != before:
            runs.append((code, now))
        before = now
    return runs


def runs_of(pairs, steps):
    """(first, count, its value, (step, step of values)) of pairs that follow each other in one of these steps."""
    runs = []
    for code, value in pairs:
        if runs:
            first, count, first_value, step = runs[-1]
            found = (code - first - (count - 1) * step[0], value - first_value - (count - 1) * step[1])
            if found in steps and (count == 1 or found == step):
                runs[-1] = (first, count + 1, first_value, found)
                continue
        runs.append((code, 1, value, steps[0]))
    return runs


def lower_cases():
    for code in range(LAST + 1):
        low = chr(code).lower()
        # U+0130 alone becomes two characters; the reader of the table knows it.
        if len(low) == 1 and ord(low) != code:
            yield code, ord(low)


def bases():
    """(code, what is left of it after canonical decomposition without nonspacing marks) for every character that accents
    can be taken off; Hangul syllables follow a rule instead."""
    for code in range(LAST + 1):
        if 0xAC00 <= code <= 0xD7A3 or unicodedata.category(chr(code)) == "Mn":
            continue
        parts = unicodedata.normalize("NFD", chr(code))
        left = [ord(c) for c in parts if unicodedata.category(c) != "Mn"]
        if left != [code]:
            yield code, left


def table(kind_name, name, items):
    print(f"const {kind_name} {name}[] = {{")
    line = "   "
    for item in items:
        if len(line) + len(item) + 2 > LINE:
            print(line)
            line = "   "
        line += f" {item},"
    print(line)
    print("};")
    print(f"const std::size_t {name}_size = std::size({name});")
    print()


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print("// Made by scripts/make_unicode_tables.py from Unicode "
          f"{unicodedata.unidata_version}. Do not edit: run the script again.")
    print('#include "data/text/unicode_tables.h"')
    print()
    print("#include <iterator>")
    print()
    print("// clang-format off")
    print("namespace hearth::data::unicode {")
    print()
    table("std::uint32_t", "kind_runs", [f"{code << 8 | ord(letter):#x}" for code, letter in kind_runs()])
    lower = runs_of(lower_cases(), [(1, 1), (2, 2)])
    table("LowerRun", "lower_runs", [f"{{{f:#x}, {c}, {s}, {low - f}}}" for f, c, low, (s, _) in lower])
    entries = list(bases())
    # Runs of neighbours with the same base, or with neighbouring bases.
    single = runs_of([(code, left[0]) for code, left in entries if len(left) == 1], [(1, 0), (1, 1)])
    table("BaseRun", "base_runs", [f"{{{f:#x}, {c}, {b:#x}, {s}}}" for f, c, b, (_, s) in single])
    several = [(code, left) for code, left in entries if len(left) != 1]
    assert all(2 <= len(left) <= 3 for _, left in several), several
    table("Bases", "several_bases",
          ["{%#x, {%#x, %#x, %#x}}" % (code, *left, *[0] * (3 - len(left))) for code, left in several])
    print("}  // namespace hearth::data::unicode")
    print(f"{len(single)} runs of bases, {len(several)} of several", file=sys.stderr)


main()
