# SPDX-License-Identifier: Apache-2.0
"""Finds places for faults in kernel sources, by operators that know C++ and no op, and the tests that cover a file.

A place is a range of a file's text and what stands there with the fault behind a switch. The switch is a function of a
number N that scripts/mutate writes into its copy of the sources (core/planted_fault.h)."""

import re
from dataclasses import dataclass, field

OPERATORS = {
    "barrier": "a barrier, or a wait for an asynchronous copy, left out",
    "order": "a wait or an event between streams, or between host and stream, left out",
    "index": "a subscript one too far",
    "bound": "a loop that ends one turn early",
    "compare": "a comparison that is strict where it was not, or the reverse",
    "mask": "a condition left out",
    "store": "a stored value off by a hundredth or by one",
    "narrow": "a sum kept in fewer bits",
    "row": "of the table: what no operator makes",
}


@dataclass(frozen=True)
class Place:
    file: str
    line: int
    operator: str
    begin: int
    end: int
    switched: str  # with HEARTH_FAULT for the number of the fault
    turn: int = 0  # among the operator's places of this line
    program: str = ""  # of the table's rows only
    tests: str = ""
    environment: dict = field(default_factory=dict, hash=False)

    @property
    def name(self):
        return f"{self.file}:{self.line}:{self.operator}" + (f"#{self.turn}" if self.turn else "")


# What no operator makes: file, original (found once), faulty, program, tests, environment.
ROWS = (
    ("ops/shape/indexing.cpp", "dx.fill_(0);", "if (dx.size() > 0) __builtin_memset(dx.bytes(), 0, dx.byte_size());", "ops",
     "Op.Slice/cuda_f32", {"HEARTH_EMULATE_PROTECT": "1"}),
    ("core/cuda/graph.cpp", "arena.run(work);", "work();", "train", "CudaOrder.*", {}),
    ("core/cuda/graph.cpp", "is_recording(stream.device()) ? state_of(stream.device()).random_step : nullptr",
     "static_cast<const std::uint64_t*>(nullptr)", "train", "CudaOrder.*", {}),
    ("ops/pointwise/drop_path.cu", "std::fma(added.at[k], scale, sum.at[k])", "added.at[k] * scale + sum.at[k]", "ops",
     "DropPathOnDevices.ADeviceRoundsASumOnce", {}),
)

COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
# Code that only nvcc sees.
DEVICE_ONLY = re.compile(r"^[ \t]*#if[^\n]*__CUDA(?:CC|_ARCH)__.*?^[ \t]*#(?:else|endif)", re.M | re.S)
BARRIER = re.compile(r"(?:cuda::)?(?:__syncthreads|__syncwarp|cp_async_wait<[^;]*?>|wait_for_row)\(\w*\)$")
ORDER = re.compile(r"HEARTH_TRY\(cuda(?:StreamWaitEvent|EventRecord|EventSynchronize|StreamSynchronize)\(.*\)\)$|"
                   r"cudaStreamSynchronize\(\w+\)$|stream\.wait\(\)$", re.S)
HEADER = re.compile(r"\s*(?:HEARTH_UNROLL\b|else\b|case [^:]*:(?!:)|default:|(?:if|for|while)(?: constexpr)? ?(?=\())")
COMPARISON = re.compile(r" (<=|>=|==|!=|<|>) ")
FAULT = "::hearth::planted_fault(HEARTH_FAULT)"
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
BEFORE_CHOICE = re.compile(r"(?: [-+*/]?=| \?| :|&&|\|\||\breturn) $")


def blanked(text):
    """The text with what is no code replaced by spaces, place by place."""
    for pattern in (DEVICE_ONLY, COMMENT_OR_STRING, DIRECTIVE):
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def closing(code, at):
    """Where the bracket at `at` is closed; the text's end if it is not."""
    depth = 0
    for i in range(at, len(code)):
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
            if depth == 0:
                return i
    return len(code)


def top_level(code, begin, end, separator):
    """Pieces of [begin, end) between separators that no bracket encloses, as (begin, end)."""
    pieces, depth, start, i = [], 0, begin, begin
    while i < end:
        if code[i] in "([{":
            depth += 1
        elif code[i] in ")]}":
            depth -= 1
        found = separator.match(code, i) if depth == 0 else None
        if found:
            pieces.append((start, i))
            i = start = found.end()
            continue
        i += 1
    return pieces + [(start, end)]


def statements(code):
    """(begin, end) of each simple statement, without its ';' and without the headers of its loops and conditions."""
    open_brackets, start = [], 0
    for i, char in enumerate(code):
        if char in "([{":
            open_brackets.append((char, start))
            if char == "{":
                start = i + 1
        elif char in ")]}":
            before = open_brackets.pop()[1] if open_brackets else 0
            # A lambda's body within a call ends; the call's statement goes on.
            start = before if char == "}" and open_brackets and open_brackets[-1][0] != "{" else start
            start = i + 1 if char == "}" and (not open_brackets or open_brackets[-1][0] == "{") else start
        elif char == ";" and (not open_brackets or open_brackets[-1][0] == "{"):
            begin = start
            while header := HEADER.match(code, begin, i):
                begin = header.end()
                if code[begin] == "(":
                    begin = closing(code, begin) + 1
            begin += len(code[begin:i]) - len(code[begin:i].lstrip())
            if begin < i:
                yield begin, i
            start = i + 1


def conditions(code):
    """(begin, end, guards) of what an `if` asks; guards: it leaves the function or turn where that holds."""
    for found in re.finditer(r"\bif \(", code):
        end = closing(code, found.end() - 1)
        if not re.search(r"[;{]|[^=!<>]=[^=]", code[found.end():end]):
            yield found.end(), end, re.match(r"\) (?:return|continue)\b", code[end:]) is not None


def chosen_by(code):
    """(begin, end) of what stands before each ' ? ', back to where it can begin."""
    for found in re.finditer(r" \? ", code):
        begin = found.start()
        depth = 0
        while begin > 0:
            char = code[begin - 1]
            if char in ")]}":
                depth += 1
            elif char in "([{":
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0 and (char in ",;" or BEFORE_CHOICE.search(code[max(0, begin - 8):begin])):
                break
            begin -= 1
        yield begin + len(code[begin:found.start()]) - len(code[begin:found.start()].lstrip()), found.start()


def places_of(file, text):
    """All places of a file, in order."""
    code = blanked(text)
    found = []

    def add(operator, begin, end, switched):
        found.append((operator, begin, end, switched))

    order_file = file.startswith("core/cuda/") and file.endswith(".cpp")
    for begin, end in statements(code):
        statement = code[begin:end]
        if BARRIER.match(statement):
            add("barrier", begin, end, f"if (!{FAULT}) {text[begin:end]}")
        elif order_file and ORDER.match(statement):
            add("order", begin, end, f"do {{ if (!{FAULT}) {{ {text[begin:end]}; }} }} while (false)")
        elif not order_file:
            add_assignment(code, text, begin, end, add)
    if order_file:
        found = [place for place in found if place[0] == "order"]
    else:
        add_conditions(code, text, add)
        add_subscripts(code, text, add)
        for call in re.finditer(r"\bcpu::store\(", code):
            last = top_level(code, call.end(), closing(code, call.end() - 1), re.compile(", "))[-1]
            add("store", *last, f"::hearth::planted_change(HEARTH_FAULT, {text[last[0]:last[1]]})")
    turns, places = {}, []
    for operator, begin, end, switched in sorted(found, key=lambda place: place[1:]):
        line = text.count("\n", 0, begin) + 1
        turn = turns[(line, operator)] = turns.get((line, operator), -1) + 1
        places.append(Place(file, line, operator, begin, end, " ".join(switched.split()), turn))
    return places


def add_assignment(code, text, begin, end, add):
    statement = code[begin:end]
    sign = re.search(r" (\+?=) ", statement)
    if not sign or re.match(r"(?:constexpr|using|static|template|return|const|auto)\b", statement):
        return
    left, right = statement[:sign.start()], begin + sign.end()
    # Declarations have two words before the name.
    if re.search(r"[\w>][*&]? +[*&\w]", re.sub(r"\[.*?\]", "[]", left)) or "[&" in left or code[right] == "{":
        return
    if sign[1] == "+=":
        target = text[begin:begin + len(left)]
        add("narrow", begin, end, f"{{ {text[begin:end]}; ::hearth::planted_rounding(HEARTH_FAULT, {target}); }}")
    elif "[" in left or left.startswith("*"):
        add("store", right, end, f"::hearth::planted_change(HEARTH_FAULT, {text[right:end]})")


def add_conditions(code, text, add):
    both = re.compile(r" (?:&&|\|\|)\s")
    asked = [(begin, end, guards) for begin, end, guards in conditions(code)]
    for begin, end, guards in asked:
        if guards:
            add("mask", begin, end, f"!{FAULT} && ({text[begin:end]})")
        elif "&&" in code[begin:end] and "||" not in code[begin:end]:
            for piece in top_level(code, begin, end, re.compile(r" &&\s+")):
                add("mask", *piece, f"({FAULT} || ({text[piece[0]:piece[1]]}))")
    for begin, end in [place[:2] for place in asked] + list(chosen_by(code)):
        for first, last in top_level(code, begin, end, both):
            first += len(code[first:last]) - len(code[first:last].lstrip())
            signs = [COMPARISON.match(code, i) for i in range(first, last)]
            signs = [sign for sign in signs if sign and len(top_level(code, first, sign.start(), re.compile(r"$"))) == 1
                     and code[first:sign.start()].count("(") == code[first:sign.start()].count(")")]
            if len(signs) != 1 or signs[0].end() > last:
                continue
            left, right = text[first:signs[0].start()], text[signs[0].end():last]
            add("compare", first, last, f"({FAULT} ? ({left} {OTHER[signs[0][1]]} {right}) : "
                                        f"({left} {signs[0][1]} {right}))")
    for loop in re.finditer(r"\bfor \(", code):
        parts = top_level(code, loop.end(), closing(code, loop.end() - 1), re.compile(";"))
        if len(parts) != 3:
            continue
        end = re.search(r" <=? (.*)$", code[slice(*parts[1])], re.S)
        if end and not re.search(r"&&|\|\| | \? ", end[1]):
            begin = parts[1][0] + end.start(1)
            add("bound", begin, parts[1][1], f"({text[begin:parts[1][1]]}) - ::hearth::planted_step(HEARTH_FAULT)")


def add_subscripts(code, text, add):
    for bracket in re.finditer(r"(?<=[\w\])])\[", code):
        begin, end = bracket.end(), closing(code, bracket.start())
        line = code[code.rfind("\n", 0, begin) + 1:bracket.start()]
        inside = code[begin:end]
        declares = re.search(r"(?:^|[\w>][*&]?) +[*&]?\w+(?:\[[^\]]*\])*$", line) and not re.search(
            r"(?:\breturn|\belse|\bcase|^) +\w+(?:\[[^\]]*\])*$", line)
        declares = declares or re.match(r"\s*(?:__shared__ |static |const )*[\w:]+(?:<.*?>)? [*&]?\w+\[", line)
        if declares or re.search(r"\(&\w+\)$|\boperator$|\bdelete$", line) or not inside.strip():
            continue
        if inside.strip().isdigit() or "," in inside or "{" in inside:
            continue
        add("index", begin, end, f"({text[begin:end]}) + ::hearth::planted_step(HEARTH_FAULT)")


def row_places(root):
    for file, original, faulty, program, tests, environment in ROWS:
        text = (root / file).read_text() if (root / file).is_file() else ""
        if text.count(original) != 1:
            raise LookupError(f"{file} has {text.count(original)} times {original}; bring ROWS up to date")
        suite = tests.removeprefix("Op.").replace("/", ".").partition(".")[0]
        if not any(f"({suite}" in path.read_text() for path in (root / "tests" / program).rglob("*_test.cpp")):
            raise LookupError(f"tests/{program} has no suite {suite}; bring ROWS up to date")
        begin = text.index(original)
        switched = (f"do {{ if ({FAULT}) {{ {faulty} }} else {{ {original} }} }} while (false);"
                    if original.endswith(";") else f"({FAULT} ? ({faulty}) : ({original}))")
        yield Place(file, text.count("\n", 0, begin) + 1, "row", begin, begin + len(original), switched,
                    program=f"hearth_test_{program}", tests=tests, environment=environment)


def sources(root):
    """Kernel sources and the headers that only they include; of the CUDA runtime, what orders streams."""
    found = set()
    for module in ("core", "autograd", "ops", "optim"):
        for pattern in ("*.cu", "*.cuh", "*_cpu.cpp", "*_cpu.h"):
            found |= {path.relative_to(root).as_posix() for path in (root / module).rglob(pattern)}
    found |= {path.relative_to(root).as_posix() for path in (root / "core/cuda").glob("*.cpp")}
    return sorted(found | {"core/cuda/kernel.h", "core/cuda/elementwise.h"})


class Coverage:
    """Which tests run a file's code: those named after it, after the kernels that include it, or after their folder."""

    def __init__(self, root):
        self.root = root
        self.includes = {}
        for file in sources(root):
            self.includes[file] = set(re.findall(r'#include "([^"]+)"', (root / file).read_text()))
        self.tests = sorted(path for path in (root / "tests").rglob("*_test.cpp"))

    def users(self, file):
        """The .cu and .cpp files that see it."""
        reached, waiting = {file}, [file]
        while waiting:
            header = waiting.pop()
            for other, included in self.includes.items():
                if header in included and other not in reached:
                    reached.add(other)
                    waiting.append(other)
        return sorted(name for name in reached if name.endswith((".cu", ".cpp"))) or [file]

    def suites(self, module, stem):
        """Patterns for the tests of the files that are named after the stem, or the stem's beginning."""
        while stem:
            here = [path for path in self.tests if re.match(rf"tests/{module}/", path.relative_to(self.root).as_posix())
                    and path.name.startswith(stem)]
            patterns = set()
            for path in here:
                text = path.read_text()
                patterns |= {f"Op.{name}/" for name in re.findall(r"\bOP_TEST\((\w+)\)", text)}
                patterns |= {"Op.Pointwise_*/" for _ in re.findall(r"OP_TEST\(\w+_##", text)}
                patterns |= {f"*{name}.*" for name in re.findall(r"\bTEST(?:_F|_P)?\((\w+),", text)}
            if patterns:
                return patterns
            stem = stem.rpartition("_")[0]
        return set()

    def of(self, place):
        """(program, filter) of a place's tests."""
        if place.program:
            return place.program, place.tests
        module = place.file.split("/")[0]
        cuda = not re.search(r"_cpu\.(cpp|h)$", place.file)
        if module in ("core", "optim") and not place.file.startswith("core/cuda/") or place.operator == "order":
            return f"hearth_test_{module}", "*Cuda*:*cuda*:*OnDevice*" if cuda else "*-*cuda*:*Cuda*:*OnDevice*"
        site = "cuda_*" if cuda else "cpu_*"
        found = set()
        for user in [name for name in self.users(place.file) if name.startswith("ops/")][:8]:
            folder, name = user.split("/")[1], user.split("/")[-1]
            stem = re.sub(r"_(cpu|mma|library|grad_cpu|sums_cpu)$", "", name.rpartition(".")[0])
            found |= self.suites("ops", stem) or self.suites("ops", folder) or {"Op.*/"}
        found = found or {"Op.*/"}
        return "hearth_test_ops", ":".join(sorted(name + site if name.endswith("/") else name for name in found))
