"""Text that is no module, is cut, or was made to hurt: one sentence, soon, or a module, never anything else."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kcontract.errors import InputError
from kcontract.ir.ttgir import parse, reader

HERE = pathlib.Path(__file__).parent
SEEDS = [path.read_text() for path in sorted((HERE / "modules").glob("*.*"))]
OPEN = "module {\n  tt.func @f(%x: f32) {\n"
CLOSE = "  }\n}\n"

BAD = {
    "empty": ("", "no operation found", None),
    "blank": ("\n\n  \n", "no operation found", None),
    "only aliases": ("#loc = loc(unknown)\n", "no operation found", None),
    "prose": ("module {\nthis is no operation\n}\n", "is no line of a module", 2),
    "ptx": (".version 8.0\n.target sm_90\n", "is no line of a module", 1),
    "json": ('{"a": 1}\n', "is no line of a module", 1),
    "binary": ("\x7fELF\x02\x01\0\0", "binary", None),
    "cut in a function": (OPEN + "    %a = arith.negf %x : f32\n", "ends inside tt.func, opened on line 2", 2),
    "cut in an operation": (OPEN + "    %a = arith.ne", "ends inside tt.func", 2),
    "closes too much": (OPEN + CLOSE + "}\n", "closes nothing", 5),
    "undefined": (OPEN + "    %a = arith.negf %y : f32\n" + CLOSE, "%y is used and never defined", 3),
    "defined twice": (OPEN + "    %x = arith.negf %x : f32\n" + CLOSE, "%x is defined twice", 3),
    "endless value": (OPEN + f"%{'9' * 5000} = a.b\n" * 2 + CLOSE, f"value %{'9' * 59} is defined twice", 4),
    "sibling scope": (
        OPEN + "scf.if %x {\n%a = arith.negf %x : f32\n}\n%b = arith.negf %a : f32\n" + CLOSE,
        "%a is used and never defined",
        6,
    ),
    "no such block": (OPEN + "    cf.br ^bb7\n" + CLOSE, "no block is labelled ^bb7", 3),
    "label twice": (OPEN + "  ^bb1:\n    tt.return\n  ^bb1:\n" + CLOSE, "no new label", 5),
    "bad argument": ("module {\n  tt.func @f(x) {\n" + CLOSE, "no argument of a block", 2),
    "bad result": (OPEN + "    %a b = arith.negf %x : f32\n" + CLOSE, "no name of a result", 3),
    "partitions first": (OPEN + "ttg.warp_specialize()\npartition0() {\n}\n" + CLOSE, "default does not precede", 4),
    "endless name": (OPEN + "scf.for" * 200 + " {\n", "the text ends inside scf.forscf", 3),
    "two modules": ("module {\n}\nmodule {\n}\n", "a second module", 3),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_text_names_the_line(name):
    text, message, line = BAD[name]
    with pytest.raises(InputError) as caught:
        parse(text)
    assert message in str(caught.value) and caught.value.line == line


def exercise(text):
    """Read and look at everything; an ``InputError`` is a right answer too."""
    try:
        module = parse(text)
        for operation in module.operation.walk():
            _ = (operation.attributes, operation.location, operation.successors, repr(operation.results))
            _ = [(value.type.bits, value.type.pointee, value.layout, value.location) for value in operation.results]
            for region in operation.regions:
                for block in region.blocks:
                    _ = [(value.type, value.location) for value in block.arguments]
    except InputError as error:
        assert str(error).strip()
        return None
    return module


def many(line, count=150_000):
    return OPEN + line * count + CLOSE


HOSTILE = {
    "regions in regions": "module {\n" + "scf.if %a {\n" * 100_000,
    "functions in functions": "tt.func @f() {\n" * 100_000,
    "many operations": many("a.b\n", 1_000_000),
    "many operands": many("a.b " + "%x," * 100 + "\n", 10_000),
    "one line": OPEN + "a.b " + "%x, " * 750_000 + "\n" + CLOSE,
    "long lines": many("a.b " + "(" * 1_000_000 + "\n", 7),
    "open quotes": many('a.b "' + '\\"' * 500_000 + "\n", 7),
    "backslashes": f'#loc = loc("{chr(92) * 100_000})\n' + OPEN + "a.b loc(#loc)\n" + CLOSE,
    "open brackets": OPEN + "%r:2 = a.b " + "<(" * 500_000 + "\n" + CLOSE,
    "arrows": OPEN + "%r = scf.if %x -> " + "() -> " * 170_000 + "() {\n}\n" + CLOSE,
    "dictionaries": OPEN + "%r = a.b " + "{a} " * 250_000 + "\n" + CLOSE,
    "pairs": OPEN + "a.b " + " a = [" * 170_000 + "\n" + CLOSE,
    "flags": OPEN + "a.b " + " fastmath<" * 100_000 + "\n" + CLOSE,
    "labels": OPEN + "a.b " + "^bb1(" * 200_000 + "\n  ^bb1:\n" + CLOSE,
    "alternatives": OPEN + "a.b {\n" + "}, {\n" * 190_000 + "}\n" + CLOSE,
    "continuations": OPEN + "a.b\n" + ": f32\n" * 1_000_000 + CLOSE,
    "open lists": OPEN + "a.b [\n" + "[\n" * 1_000_000 + CLOSE,
    "results": OPEN + "%r:4000 = a.b\n" + "".join(f"%r{i}:4000 = a.b\n" for i in range(3_000)) + CLOSE,
    "huge count": OPEN + "%r:99999999999999999999 = a.b\n" + CLOSE,
    "forward uses": OPEN + "".join(f"a.b %y{i}\n" for i in range(150_000)) + CLOSE,
    "aliases": "#a = #b\n" * 800_000 + OPEN + CLOSE,
    "doubling layouts": "".join(f"#a{i} = #t<#a{i + 1}, #a{i + 1}>\n" for i in range(90))
    + OPEN
    + "%r = arith.negf %x : tensor<8xf32, #a0>\n"
    + CLOSE,
    "doubling places": "".join(f"#l{i} = loc(callsite(#l{i + 1} at #l{i + 1}))\n" for i in range(300))
    + '#l300 = loc("a":1:1)\n'
    + OPEN
    + "a.b loc(#l0)\n"
    + CLOSE,
    "places in a circle": "#l = loc(#m)\n#m = loc(callsite(#l at #m))\n" + OPEN + "a.b loc(#l)\n" + CLOSE,
    "nested places": OPEN + "a.b loc(" + '"n"(' * 100_000 + "unknown" + ")" * 100_001 + "\n" + CLOSE,
    "nested types": OPEN + "%r = tt.load %x : " + "!tt.ptr<" * 100_000 + "f16" + ">" * 100_000 + "\n" + CLOSE,
    "nested tuples": OPEN + "%r = a.b : () -> " + "tuple<" * 100_000 + ">" * 100_000 + "\n" + CLOSE,
    "odd digits": OPEN + "%r = arith.negf %x : tensor<²x３xf32>\n" + CLOSE,
    "not text": "".join(map(chr, range(1, 256))) * 15_000,
}


MEASURE = """
import json, time
import test_ttgir_bad_input as bad
seconds = {}
for name, text in bad.HOSTILE.items():
    start = time.process_time()
    bad.exercise(text)
    seconds[name] = time.process_time() - start
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss knows the parent's
print(json.dumps([seconds, int(peak.split()[1])]))
"""


@pytest.fixture(scope="module")
def measured():
    """Processor seconds of each hostile text, and the KiB resident at the peak, all in one new process."""
    paths = os.pathsep.join((str(HERE), str(HERE.parents[2] / "src")))
    environment = {**os.environ, "PYTHONPATH": paths}
    run = subprocess.run([sys.executable, "-c", MEASURE], env=environment, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_ends_soon(name, measured):
    assert measured[0][name] < 6  # a second on a quiet machine; what does not end soon takes minutes


def test_hostile_text_needs_little_memory(measured):
    assert measured[1] < 512 << 10


def test_limits_are_sentences():
    for text, message in (
        (" " * (reader.MAX_TEXT + 1), "and at most 8,388,608 are read"),
        (HOSTILE["regions in regions"].replace("%a", ""), "nested deeper than 1,000"),
        (HOSTILE["one line"], "a line of 3,000,003 characters"),
        (HOSTILE["many operations"], "more than 60,000 operations"),
    ):
        with pytest.raises(InputError, match=message):
            parse(text)


def test_a_deep_but_legal_nest_is_read():
    depth = reader.MAX_DEPTH - 10
    module = parse(OPEN + "scf.if %x {\n" * depth + "}\n" * depth + CLOSE)
    assert len(module.find("scf.if")) == depth and sum(1 for _ in module.operation.walk()) == 2 * depth + 2


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SEEDS), st.data())
def test_cut_and_spliced_modules(seed, data):
    places = st.integers(0, len(seed))
    a, b, c = (data.draw(places) for _ in range(3))
    exercise(seed[:a])
    exercise(seed[:a] + seed[b:])
    exercise(seed[:a] + seed[min(b, c) : max(b, c)] + seed[a:])


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.floats(0, 1), st.characters()), min_size=1, max_size=20))
def test_changed_characters(seed, changes):
    text = list(seed)
    for place, character in changes:
        text[min(int(place * len(text)), len(text) - 1)] = character
    exercise("".join(text))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SEEDS), st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=8))
def test_moved_lines(seed, moves):
    lines = seed.splitlines()
    for source, target in moves:
        lines.insert(int(target * len(lines)), lines[min(int(source * len(lines)), len(lines) - 1)])
    exercise("\n".join(lines))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet=' \n%#^{}()<>[]"\\:=,.-@!abx10', max_size=400))
def test_random_text(text):
    exercise(text)
    exercise(OPEN + text + "\n" + CLOSE)


def test_the_seeds_are_good():
    assert len(SEEDS) >= 4 and all(exercise(seed) for seed in SEEDS)
