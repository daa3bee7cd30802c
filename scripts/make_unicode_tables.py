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
    # Characters that Unicode gives the property White_Space.
    if code in (0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000) or 0x2000 <= code <= 0x200A:
        return "s"
    if 0x09 <= code <= 0x0D or code == 0x20:
        return "s"
    if category == "Mn":
        return "m"
    # What is not assigned is no control character: texts of a later Unicode keep it.
    if category == "Cn":
        return "o"
    return {"L": "l", "N": "n", "P": "p", "C": "c"}.get(category[0], "o")


def stripped(code):
    """What is left of a character after canonical decomposition without nonspacing marks."""
    parts = unicodedata.normalize("NFD", chr(code))
    return [ord(c) for c in parts if unicodedata.category(c) != "Mn"]


def kind_runs():
    runs, before = [], None
    for code in range(LAST + 1):
        now = kind(code)
        if now != before:
            runs.append((code, now))
        before = now
    return runs


def lower_runs():
    """(first, count, stride, delta): characters whose lower case lies `delta` further on."""
    pairs = []
    for code in range(LAST + 1):
        low = chr(code).lower()
        # U+0130 alone becomes two characters; the reader of the table knows it.
        if len(low) == 1 and ord(low) != code:
            pairs.append((code, ord(low) - code))
    runs = []
    for code, delta in pairs:
        if runs:
            first, count, stride, run_delta = runs[-1]
            step = code - (first + (count - 1) * stride) if count > 1 else code - first
            if delta == run_delta and step in (1, 2) and (count == 1 or step == stride):
                runs[-1] = (first, count + 1, step, delta)
                continue
        runs.append((code, 1, 1, delta))
    return runs


def stripped_entries():
    """(code, bases) for every character that accents can be taken off; Hangul syllables follow a rule instead."""
    found = []
    for code in range(LAST + 1):
        if 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code <= 0xDFFF:
            continue
        if unicodedata.category(chr(code)) == "Mn":
            continue
        bases = stripped(code)
        if bases != [code]:
            found.append((code, bases))
    return found


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
    print('#include "hearth/data/text/unicode_tables.h"')
    print()
    print("#include <iterator>")
    print()
    print("// clang-format off")
    print("namespace hearth::data::unicode {")
    print()
    table("std::uint32_t", "kind_runs", [f"{code << 8 | ord(letter):#x}" for code, letter in kind_runs()])
    table("LowerRun", "lower_runs", [f"{{{f:#x}, {c}, {s}, {d}}}" for f, c, s, d in lower_runs()])
    single, several = [], []
    for code, bases in stripped_entries():
        if len(bases) > 1 or len(bases) == 0:
            assert 2 <= len(bases) <= 3, (hex(code), bases)
            several.append((code, bases + [0] * (3 - len(bases))))
        else:
            single.append((code, bases[0]))
    # Runs of neighbours with neighbouring bases, or with the same base.
    runs = []
    for code, base in single:
        if runs:
            first, count, first_base, step = runs[-1]
            if code == first + count:
                if count == 1 and base - first_base in (0, 1):
                    runs[-1] = (first, 2, first_base, base - first_base)
                    continue
                if count > 1 and base == first_base + count * step:
                    runs[-1] = (first, count + 1, first_base, step)
                    continue
        runs.append((code, 1, base, 0))
    table("BaseRun", "base_runs", [f"{{{f:#x}, {c}, {b:#x}, {s}}}" for f, c, b, s in runs])
    table("Bases", "several_bases",
          ["{%#x, {%#x, %#x, %#x}}" % (code, *bases) for code, bases in several])
    print("}  // namespace hearth::data::unicode")
    print(f"{len(runs)} runs of bases, {len(several)} of several", file=sys.stderr)


main()
