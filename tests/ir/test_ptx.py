import re
import time
from pathlib import Path

import compiled
import pytest

from kcontract.errors import InputError
from kcontract.ir.ptx import (
    Address,
    Group,
    Immediate,
    Label,
    Opaque,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
    parse,
)
from kcontract.ir.ptx.reader import MAX_CHARACTERS, MAX_STATEMENTS

HEAD = ".version 8.7\n.target sm_100a, debug\n.address_size 64\n"


@pytest.fixture(scope="module")
def corpus():
    return [kernel.asm["ptx"] for kernel in compiled.corpus()]


def kernel(body):
    """The one entry of a module whose body is ``body``."""
    program = parse(f"{HEAD}.visible .entry k(.param .u64 k_0)\n.reqntid 128\n{{\n{body}\n}}\n")
    return program.entry


def operands(text, declarations=".reg .pred %p<9>; .reg .b32 %r<99>; .reg .b64 %rd<9>; .reg .f32 %f<9>;"):
    (instruction,) = kernel(f"{declarations}\n{text}").instructions
    return instruction.operands


def walk(operand):
    yield operand
    for child in (
        *getattr(operand, "elements", ()),
        *getattr(operand, "coordinates", ()),
        *(getattr(operand, name) for name in ("first", "second", "base") if hasattr(operand, name)),
    ):
        yield from walk(child)


# Real compiler output.


def test_every_operand_is_read_and_every_register_declared(corpus):
    for text in corpus:
        for instruction in parse(text).instructions:
            for operand in (inner for top in instruction.operands for inner in walk(top)):
                assert not isinstance(operand, Opaque), (instruction.name, operand.text)
                assert not isinstance(operand, Register) or operand.type, (instruction.name, operand.name)
            assert instruction.guard is None or instruction.guard.type == "pred"


def test_instructions_stand_on_their_lines(corpus):
    for text in corpus:
        lines = text.split("\n")
        for instruction in parse(text).instructions:
            assert instruction.name in lines[instruction.line - 1]


def test_opcode_counts_equal_a_count_of_statements(corpus):
    for text in corpus:
        body = re.sub(r"//[^\n]*|/\*.*?\*/", "", text.partition("\t.section")[0])
        statements = re.split(r"[;\n]|^\s*[{}]", body, flags=re.MULTILINE)
        words = (re.match(r"\s*(?:[{}]\s*)?(?:@!?%?\w+\s+)?([a-z][\w.:]*)(?:\s|$)", part) for part in statements)
        counted = sum(1 for word in words if word and not word[1].endswith(":"))
        assert sum(parse(text).opcodes().values()) == counted


def test_blocks_partition_the_function_and_branches_resolve(corpus):
    for text in corpus:
        for function in parse(text).functions:
            covered = [index for block in function.blocks for index in range(block.start, block.end)]
            assert covered == list(range(len(function)))
            for instruction in function.instructions:
                assert not instruction.is_branch or function.targets(instruction)
            if function.blocks:
                assert any(block.exits for block in function.blocks)


def test_header_and_parameters_of_a_kernel():
    made = compiled.add_for(100)
    program = parse(made.asm["ptx"])
    assert program.version >= (8, 6) and program.target == "sm_100a" and program.address_size == 64
    entry = program.entry
    assert (entry.name, entry.kind, entry.linkage, entry.directives["reqntid"]) == ("add", "entry", "visible", (128,))
    first, *_, count = entry.parameters[:4]
    assert (first.type, first.size, first.align, first.space, first.pointee_align) == ("u64", 8, 8, "global", 1)
    assert (count.name, count.type, count.size, count.space) == ("add_param_3", "u32", 4, None)


def test_shared_memory_and_prototypes_of_module_level():
    program = parse(compiled.matmul_for(100).asm["ptx"])
    (smem,) = program.variables
    assert (smem.name, smem.space, smem.linkage, smem.align, smem.size) == ("global_smem", "shared", "extern", 16, None)
    outlined = [f for f in parse(compiled.calling_for(80).asm["ptx"]).functions if "outlined" in f.name]
    assert [(f.kind, f.declared_only, len(f) > 0) for f in outlined] == [("func", True, False), ("func", False, True)]
    assert [p.type for p in outlined[1].parameters + outlined[1].returns] == ["b32", "b32"]


def test_clusters_and_register_bounds_are_directives():
    directives = parse(compiled.matmul_for(90, num_ctas=2).asm["ptx"]).entry.directives
    assert directives["reqnctapercluster"] == (2,) and directives["explicitcluster"] == ()
    assert parse(compiled.sincos_for(80, maxnreg=32).asm["ptx"]).entry.directives["maxnreg"] == (32,)


def test_places_carry_the_chain_of_inlined_calls():
    lines = Path(compiled.__file__).read_text().split("\n")
    text = compiled.inlined_for(90).asm["ptx"]
    program = parse(text)
    (place,) = {instruction.location for instruction in program.instructions if instruction.opcode == "max"}
    chain = [lines[caller.line - 1].strip() for caller in place.chain()]
    written = [
        "return tl.maximum(value, 0.5)",
        "return halved(value + 1.0) - 3.0",
        "tl.store(out + at, shifted(tl.load(x + at)))",
    ]
    # Triton 3.6 keeps the innermost place only.
    assert chain == (written if "inlined_at" in text else written[:1])
    assert all(caller.file == compiled.__file__ and caller.column > 0 for caller in place.chain())


def test_inline_assembly_regions_are_numbered():
    instructions = list(parse(compiled.add_for(90).asm["ptx"]).instructions)
    loads = [i for i in instructions if i.name == "ld.global.b32"]
    assert len(loads) == 16 and len({i.inline for i in loads}) == 16 and None not in {i.inline for i in loads}
    assert all(i.inline is None for i in instructions if i.opcode in ("add", "mul", "ret"))


# Statements.

SPIN = """{
 .reg .pred done;
 waitLoop:
 mbarrier.try_wait.parity.shared::cta.b64 done, [%r1], %r2;
 @!done bra.uni waitLoop;
}"""


def test_repeated_labels_and_registers_resolve_in_their_own_scope():
    function = kernel(f".reg .b32 %r<9>;\n{SPIN}\n{SPIN}\nret;")
    first, jump, second, other_jump, leave = function.instructions
    assert function.targets(jump) == (first.index,) and function.targets(other_jump) == (second.index,)
    assert (first.scope, second.scope, leave.scope) == (1, 2, 0)
    assert jump.guard == Register("done", "pred", None, True)
    assert function.register("done", 0) is None and function.register("%r1", 2).type == "b32"
    assert function.resolve_label("waitLoop", 0) is None
    assert [block.successors for block in function.blocks] == [(0, 1), (1, 2), ()]
    assert [block.exits for block in function.blocks] == [False, False, True]


def test_register_names_that_end_in_digits():
    function = kernel(".reg .b16 c1<3>; .reg .b32 a<12>; .reg .b64 c5; .reg .f32 %f<2>; ret;")
    wanted = {"c5": "b64", "a4": "b32", "a11": "b32", "c12": "b16", "c10": "b16", "%f1": "f32"}
    assert {name: function.register(name, 0).type for name in wanted} == wanted
    assert [function.register(name, 0) for name in ("c13", "a12", "a01", "%f2", "%f", "a" + "1" * 10_000)] == [None] * 6


def test_several_statements_on_one_line():
    body = "{ .reg .b16 a<2>, b; @%p1 mov.b16 a0, 1; add.s16 b, a0, a1; } bar.sync 0; ret;"
    function = kernel(f".reg .pred %p<2>;\n{body}")
    assert [i.name for i in function.instructions] == ["mov.b16", "add.s16", "bar.sync", "ret"]
    assert function.instructions[1].operands == (Register("b", "b16"), Register("a0", "b16"), Register("a1", "b16"))
    assert {i.line for i in function.instructions} == {8}


def test_indexed_branches_name_their_targets():
    function = kernel("""
      .reg .b32 %r<2>;
      $L_brx_0: .branchtargets $A, $B;
      brx.idx %r1, $L_brx_0;
      $A: ret;
      $B: trap;""")
    branch = function.instructions[0]
    assert branch.operands == (Register("%r1", "b32"), Label("$L_brx_0"))
    assert function.targets(branch) == (1, 2)
    assert [(block.start, block.successors, block.exits) for block in function.blocks] == [
        (0, (1, 2), False),
        (1, (), True),
        (2, (), True),
    ]


def test_comments_and_labels_do_not_hide_instructions():
    body = "/* ; } */ $L1: // x; {\n mov.b32 %r1, /* a; */ 2; // tail\n bra $L1 // no end\n ;"
    function = kernel(f".reg .b32 %r<2>;\n{body}")
    assert [(i.name, i.line) for i in function.instructions] == [("mov.b32", 9), ("bra", 10)]
    assert function.instructions[0].operands[1].value == 2
    assert function.targets(function.instructions[1]) == (0,)


def test_unknown_opcodes_directives_and_operands_stay_opaque():
    function = kernel(".reg .b32 %r<3>; .frobnicate 3;\n zorch.v9::x.b77 %r1, <5>, @foo;\n mov.b32 %r1, [%r1+%r2];")
    strange, address = function.instructions
    assert (strange.opcode, strange.modifiers) == ("zorch", ("v9::x", "b77"))
    assert strange.operands == (Opaque("%r1, <5>, @foo"),)
    assert address.operands == (Opaque("%r1, [%r1+%r2]"),)


def test_module_level_variables():
    program = parse(f"""{HEAD}
.global .align 4 .b8 text[6] = {{104, 101, 108, 108, 111, 0}};
.const .f32 pi = 0f40490FDB;
.global .align 8 .v2 .f32 grid[2][3] = {{{{1.0}}, {{2.0}}}};
.extern .shared .align 16 .b8 smem[];
""")
    text, pi, grid, smem = program.variables
    assert (text.size, text.elements, text.initializer) == (6, 6, "{104, 101, 108, 108, 111, 0}")
    assert (pi.space, pi.type, pi.size, pi.align, pi.initializer) == ("const", "f32", 4, 4, "0f40490FDB")
    assert (grid.elements, grid.size, grid.align) == (6, 48, 8)
    assert (smem.linkage, smem.size, smem.line) == ("extern", None, 8)
    assert program.options == ("debug",)


def test_parameters_of_other_shapes():
    program = parse(
        f"{HEAD}.entry k(.param .align 64 .b8 map[128], .param .u64 .ptr .shared .align 16 p, .param .f64 d)\n"
        ".maxntid 128, 2, 1\n.minnctapersm 2\n.reqnctapercluster 2, 1, 1 { ret; }"
    )
    tensor_map, pointer, number = program.entry.parameters
    assert (tensor_map.name, tensor_map.size, tensor_map.align, tensor_map.space) == ("map", 128, 64, None)
    assert (pointer.space, pointer.pointee_align, pointer.align) == ("shared", 16, 8)
    assert (number.type, number.size) == ("f64", 8)
    assert program.entry.directives == {
        "maxntid": (128, 2, 1),
        "minnctapersm": (2,),
        "reqnctapercluster": (2, 1, 1),
    }


# Operands.


@pytest.mark.parametrize(
    ("text", "kind", "value", "bits"),
    [
        ("5", "int", 5, 5),
        ("-5", "int", -5, 2**64 - 5),
        ("0x1F", "int", 31, 31),
        ("017", "int", 15, 15),
        ("0b101", "int", 5, 5),
        ("7U", "int", 7, 7),
        ("18446744073709551615", "int", 2**64 - 1, 2**64 - 1),
        ("0f3F800000", "f32", 1.0, 0x3F800000),
        ("0FbF000000", "f32", -0.5, 0xBF000000),
        ("0d3FF8000000000000", "f64", 1.5, 0x3FF8000000000000),
        ("-0f3F800000", "f32", -1.0, 0xBF800000),
        ("2.5", "f64", 2.5, 0x4004000000000000),
    ],
)
def test_immediates(text, kind, value, bits):
    (_, constant) = operands(f"mov.b32 %r1, {text};")
    assert (constant.kind, constant.value, constant.bits) == (kind, value, bits)


@pytest.mark.parametrize("text", ["08", "0f3F80000", "0f3F8000000", "1a", "0x", "0b2", "123456789012345678901"])
def test_what_is_no_number_is_opaque(text):
    assert isinstance(operands(f"mov.b32 %r1, {text};")[0], Opaque)


R1, R2 = Register("%r1", "b32"), Register("%r2", "b32")
RD1 = Register("%rd1", "b64")
FOUR = Immediate("4", "int", 4, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ld.global.b32 %r1, [%rd1];", (R1, Address(RD1))),
        ("ld.global.b32 { %r1 }, [ %rd1 + 0 ];", (Vector((R1,)), Address(RD1))),
        ("ld.global.b32 %r1, [%rd1+16];", (R1, Address(RD1, 16))),
        ("ld.global.b32 %r1, [%rd1+-16];", (R1, Address(RD1, -16))),
        ("ld.global.b32 %r1, [%rd1-0x10];", (R1, Address(RD1, -16))),
        ("ld.param.b64 %rd1, [k_0+8];", (RD1, Address(Symbol("k_0"), 8))),
        ("ld.global.b32 %r1, [4096];", (R1, Address(Immediate("4096", "int", 4096, 4096)))),
        ("mov.b32 %r1, smem+4;", (R1, Symbol("smem", 4))),
        ("mov.u32 %r1, %ctaid.x;", (R1, Special("%ctaid.x"))),
        ("mov.u64 %rd1, %clock64;", (RD1, Special("%clock64"))),
        ("mov.b32 %r1, %r100;", (R1, Register("%r100"))),
        ("elect.sync %r1|%p1, -1;", (Pair(R1, Register("%p1", "pred")), Immediate("-1", "int", -1, 2**64 - 1))),
        ("elect.sync _|%p1, 4;", (Pair(Sink(), Register("%p1", "pred")), FOUR)),
        (
            "and.pred %p1, %p2, !%p3;",
            (*(Register(f"%p{i}", "pred") for i in (1, 2)), Register("%p3", "pred", None, True)),
        ),
        ("st.v2.b32 [%rd1], {%r1, _};", (Address(RD1), Vector((R1, Sink())))),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global [%r1], [%rd1, {%r1, %r2}], [%r2];",
            (Address(R1), Address(RD1, 0, (Vector((R1, R2)),)), Address(R2)),
        ),
        (
            "call.uni (retval0), f, (param0, %r1);",
            (Group((Symbol("retval0"),)), Symbol("f"), Group((Symbol("param0"), R1))),
        ),
        ("call.uni f, ();", (Symbol("f"), Group(()))),
        ("mov.b32 %r1, %r2.x;", (R1, Register("%r2", "b32", "x"))),
        ("ret;", ()),
    ],
)
def test_operands(text, expected):
    assert operands(text) == expected


# Bad input.


@pytest.mark.parametrize("text", ["", "\n", "hello", "module {\n}\n", "\x7fELF\x02\0\0", ".target sm_90\n", "{" * 1000])
def test_text_that_is_not_ptx_is_a_sentence(text):
    with pytest.raises(InputError, match="this is not PTX"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".version 8.0\n", "names no .target"),
        (HEAD + "mov.b32 %r1, 2;", "code outside of a function"),
        (HEAD + ".entry k(", "function without a body"),
        (HEAD + ".entry k() {", "ends inside a function"),
        (HEAD + ".entry k() { mov.b32 %r1", "cannot be read"),
        (HEAD + ".entry k() { .reg .b32 %r<9999999999999999999>; }", "a number of 19 digits"),
        (HEAD + ".entry k() { " + "{" * 300, "scopes in one another"),
        (HEAD + ".entry () { ret; }", "a function without a name"),
        (HEAD + ".section .debug_info { .b8 1", "section without an end"),
        (HEAD + ".entry k() { .loc x; }", r"\.loc that cannot be read"),
        (HEAD + '.file 1 "a', r"\.file that cannot be read"),
    ],
)
def test_damage_is_a_sentence_with_a_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse(text)
    assert caught.value.line is not None and "damaged" in str(caught.value)


def test_a_kernel_cut_anywhere_is_a_sentence_or_a_program():
    text = compiled.inlined_for(90).asm["ptx"]
    start, end = text.index(".entry"), text.index("\n}\n")
    for cut in range(start, end, 7):
        with pytest.raises(InputError):
            parse(text[:cut])
    assert len(parse(text[: end + 3]).entry) == len(parse(text).entry)


HOSTILE = {
    "names": "a." * 400_000,
    "braces": "mov {}" * 200_000,
    "comments": "mov // x\n" * 100_000,
    "open comment": "mov /* " + "* /" * 300_000,
    "quotes": '.pragma "' * 100_000,
    "slashes": "mov " + "/" * 800_000,
    "labels": "".join(f"l{i}:" for i in range(150_000)),
    "scopes": "{}" * 200_000,
    "guards": "@p " * 250_000,
    "words": "x " * 400_000,
    "blanks": " " * 900_000,
    "parentheses": "call " + "(" * 800_000 + ";",
    "brackets": "mov " + "[" * 400_000 + "]" * 400_000 + ";",
    "signs": "mov a, " + "-" * 800_000 + "1;",
    "places": "".join(f".loc 1 {i} 1, function_name f, inlined_at 1 {i - 1} 1\n" for i in range(1, 20_000)),
    "registers": ".reg .b32 " + ",".join(f"a{i}<9>" for i in range(80_000)) + ";",
    "dimensions": ".shared .b8 a" + "[999999999999]" * 50_000 + ";",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_costs_linear_time(body):
    for text in (f"{HEAD}.entry k() {{ {body} }}", HEAD + body, f"{HEAD}.entry {body}"):
        started = time.process_time()
        try:
            for instruction in parse(text).instructions:
                assert isinstance(instruction.operands, tuple)
        except InputError:
            pass
        assert time.process_time() - started < 2


def test_inlining_deeper_than_any_compiler_goes_is_cut_off():
    chain = "".join(f".loc 1 {i} 1, function_name f, inlined_at 1 {i - 1} 1\n" for i in range(1, 1000))
    (leave,) = kernel(f"{chain}ret;").instructions
    assert len(leave.location.callers) <= 65 and leave.location.callers[0].line == 998


@pytest.mark.parametrize("statement", ["a;", "l:", "//\n", "{}", ";", ".a;"])
def test_a_function_of_too_many_statements_is_refused(statement):
    with pytest.raises(InputError, match=f"over {MAX_STATEMENTS} statements"):
        kernel(statement * (MAX_STATEMENTS + 1))


def test_a_function_of_too_many_names_is_refused():
    with pytest.raises(InputError, match="over 50000 names"):
        kernel((".reg .b32 " + ",".join(["a"] * 1000) + ";") * 60)


def test_an_operand_list_longer_than_any_instruction_is_opaque():
    (whole,) = operands("mov.b32 " + "%r1, " * 20_000 + "%r2;")
    assert isinstance(whole, Opaque)


def test_text_over_the_limit_is_refused_before_it_is_read():
    with pytest.raises(InputError, match="over the limit"):
        parse(HEAD + " " * MAX_CHARACTERS)
