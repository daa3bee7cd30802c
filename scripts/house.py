# SPDX-License-Identifier: Apache-2.0
"""Measures of the tree that must not grow without a changed line in scripts/house.json: what scripts/layers prints."""
import collections
import json
import os
import re

MODULES = ["core", "autograd", "ops", "optim", "dist", "data", "models", "train"]
MANY_FILES, LONG_FUNCTION, LINES_A_STEP = 25, 60, 500
SOURCE = re.compile(r"\.(h|cuh|cpp|cu|inc)$")
SCOPE = re.compile(r'^(template\s*<.*>\s*)?(inline\s+)?(namespace|class|struct|union|extern\s+"")\b', re.S)
# Comments and literals, whose braces are no scopes.
OPAQUE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)


def sources(root):
    for module in MODULES:
        for folder, folders, files in os.walk(os.path.join(root, module)):
            folders.sort()
            for name in sorted(files):
                if SOURCE.search(name):
                    yield os.path.relpath(os.path.join(folder, name), root)


def functions(text):
    """(name, lines) of each function that is defined in a namespace or a class."""
    text = OPAQUE.sub(lambda found: ("" if found[0][0] == "/" else '""') + "\n" * found[0].count("\n"), text)
    text = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda found: "\n" * found[0].count("\n"), text, flags=re.M)
    stack, begin, line, begin_line = [], 0, 1, 1
    for at, character in enumerate(text):
        if character == "\n":
            line += 1
        if character not in "{};":
            if not character.isspace() and not text[begin:at].strip():
                begin_line = line
            continue
        head = text[begin:at].strip()
        if character == "{":
            outside = all(kind == "scope" for kind, _, _ in stack)
            kind = "scope" if SCOPE.match(head) or not head else "function" if outside and "(" in head else "other"
            stack.append((kind, head, begin_line))
        elif character == "}" and stack:
            kind, head, first = stack.pop()
            if kind == "function":
                name = re.search(r"([\w:~]+|operator\W+)\s*\(", re.sub(r"__launch_bounds__\([^)]*\)", "", head))
                yield (name[1] if name else "?"), line - first + 1
        # What begins in a function goes on to its end.
        begin = at + 1


def knots(root, included):
    """Sets of units, headers with their sources, that need each other; the largest first."""
    unit = lambda path: os.path.splitext(path)[0]
    needs = collections.defaultdict(set)
    for path, target in included:
        if path.split("/")[0] in MODULES and target.split("/")[0] in MODULES and unit(path) != unit(target):
            needs[unit(path)].add(unit(target))
    # Tarjan's strongly connected components, without recursion.
    index, low, on_stack, stack, found = {}, {}, set(), [], []
    for start in sorted(needs):
        if start in index:
            continue
        work = [(start, iter(sorted(needs[start])))]
        index[start] = low[start] = len(index)
        stack.append(start), on_stack.add(start)
        while work:
            node, others = work[-1]
            other = next(others, None)
            if other is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    knot = set()
                    while node not in knot:
                        knot.add(stack.pop())
                    on_stack -= knot
                    if len(knot) > 1:
                        found.append(knot)
            elif other not in index:
                index[other] = low[other] = len(index)
                stack.append(other), on_stack.add(other)
                work.append((other, iter(sorted(needs[other]))))
            elif other in on_stack:
                low[node] = min(low[node], index[other])
    return sorted(found, key=lambda knot: (-len(knot), sorted(knot)))


def measure(root, included):
    """The numbers of house.json, and lines that name what they count."""
    lines, files, long_functions = collections.Counter(), collections.Counter(), []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as opened:
            text = opened.read()
        lines[path.split("/")[0]] += text.count("\n")
        files[os.path.dirname(path)] += 1
        long_functions += [(length, f"{path}: {name}") for name, length in functions(text) if length > LONG_FUNCTION]
    tied, large = knots(root, included), {folder: count for folder, count in files.items() if count > MANY_FILES}
    numbers = {"largest knot": len(tied[0]) if tied else 0, "units in knots": sum(map(len, tied)),
               f"folders above {MANY_FILES} files": len(large),
               f"functions above {LONG_FUNCTION} lines": len(long_functions)}
    numbers.update({f"lines of {module}": lines[module] for module in MODULES})
    names = [f"knot of {len(knot)}: {' '.join(sorted(knot))}" for knot in tied if len(knot) > 2]
    names += [f"{count} files: {folder}" for folder, count in sorted(large.items(), key=lambda one: -one[1])]
    names += [f"{length} lines: {name}" for length, name in sorted(long_functions, reverse=True)]
    return numbers, names


def limit(name, number):
    """What house.json allows for a number: lines up to the next step."""
    return -(-number // LINES_A_STEP) * LINES_A_STEP if name.startswith("lines of ") else number


def grown(root, numbers):
    """What is larger than house.json allows, in words."""
    with open(os.path.join(root, "scripts", "house.json"), encoding="utf-8") as opened:
        allowed = json.load(opened)
    return [f"{name}: {number}, and scripts/house.json allows {allowed.get(name, 0)}"
            for name, number in numbers.items() if number > allowed.get(name, 0)]
