"""What the reader makes of small modules, construct by construct."""

import pathlib

import pytest

from kcontract.errors import InputError
from kcontract.ir.location import Location
from kcontract.ir.ttgir import parse

HEADER = 'module attributes {"ttg.num-warps" = 4 : i32, ttg.shared = 1024 : i32, ttg.target = "cuda:90"} {\n'


def function(body, arguments="%x: f32, %n: i32, %p: i1"):
    """A module with one function of ``body``; its first line is line 3."""
    return parse(
        f"{HEADER}  tt.func public @kernel({arguments}) attributes {{noinline = false}} {{\n{body}\n  }}\n}}\n"
    )


def types(operation):
    return [value.type.text for value in operation.results]


def test_module_attributes_and_functions():
    module = function("    tt.return")
    assert module.integer("ttg.num-warps") == 4
    assert module.integer("ttg.shared") == 1024
    assert module.string("ttg.target") == "cuda:90"
    (kernel,) = module.functions
    assert kernel.string("sym_name") == "kernel" and kernel.string("sym_visibility") == "public"
    assert kernel.integer("noinline") == 0
    assert [str(value) for value in kernel.regions[0].entry.arguments[0].type.shape] == []
    assert [value.type.text for value in kernel.regions[0].entry.arguments] == ["f32", "i32", "i1"]


def test_argument_attributes_and_places():
    text = '    tt.return\n  }\n}\n#loc = loc("/a/k.py":3:1)\n#loc1 = loc("x_ptr"(#loc))\n'
    head = "  tt.func @k(%x_ptr: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc(#loc1), %n: i32 loc(unknown)) {\n"
    block = parse(HEADER + head + text).functions[0].regions[0].entry
    assert block.argument_attributes(0) == {"tt.divisibility": "16 : i32"}
    assert block.argument_attributes(1) == {}
    assert block.arguments[0].location == Location("/a/k.py", 3, 1, "x_ptr")
    assert block.arguments[1].location is None


def test_walk_is_pre_order_with_parents_and_lines():
    module = function(
        """    scf.if %p {
      %a = arith.addf %x, %x : f32
    } else {
      %a = arith.mulf %x, %x : f32
    }
    tt.return"""
    )
    names = ["tt.func", "scf.if", "arith.addf", "scf.yield", "arith.mulf", "scf.yield", "tt.return"]
    assert [operation.name for operation in module.walk()] == names
    assert [operation.name for operation in module.operation.walk()] == ["builtin.module", *names]
    assert [operation.line for operation in module.walk()] == [2, 3, 4, 5, 6, 7, 8]
    add, multiply = module.find("arith.addf", "arith.mulf")
    assert add.parent.name == "scf.if" and [o.name for o in add.ancestors()] == ["scf.if", "tt.func", "builtin.module"]
    assert [o.implicit for o in module.find("scf.yield")] == [True, True]
    x = add.operands[0]
    assert x.uses == [(add, 0), (add, 1), (multiply, 0), (multiply, 1)] and x.definition is None


def test_names_are_scoped_by_region():
    module = function(
        """    %r = scf.if %p -> (f32) {
      %a = arith.addf %x, %x : f32
      scf.yield %a : f32
    } else {
      %a = arith.mulf %x, %x : f32
      scf.yield %a : f32
    }
    %a = arith.negf %r : f32
    tt.return"""
    )
    first, second = module.find("scf.yield")
    assert first.operands[0].definition.name == "arith.addf"
    assert second.operands[0].definition.name == "arith.mulf"
    assert module.find("scf.if")[0].result.users == module.find("arith.negf")


def test_for_loop():
    module = function(
        """    %c = arith.constant dense<0.0> : tensor<4xf32>
    %r:2 = scf.for %i = %n to %n step %n iter_args(%s = %x, %t = %c) -> (f32, tensor<4xf32>)  : i32 {
      %u = arith.addf %s, %s : f32
      scf.yield %u, %t : f32, tensor<4xf32>
    } {tt.num_stages = 3 : i32}
    %v = arith.addf %r#0, %r#0 : f32
    tt.return"""
    )
    loop = module.find("scf.for")[0]
    assert [value.name for value in loop.operands] == ["%n", "%n", "%n", "%x", "%c"]
    assert [value.name for value in loop.results] == ["%r#0", "%r#1"] and types(loop) == ["f32", "tensor<4xf32>"]
    body = loop.regions[0].entry
    assert [value.name for value in body.arguments] == ["%i", "%s", "%t"]
    assert [value.type.text for value in body.arguments] == ["i32", "f32", "tensor<4xf32>"]
    assert body.terminator.operands[1] is body.arguments[2]
    assert loop.integer("tt.num_stages") == 3 and loop.integer("absent") is None
    assert [index for _, index in loop.results[0].uses] == [0, 1] and loop.results[1].uses == []


def test_loop_over_index_without_values():
    module = function("    scf.for %j = %i to %i step %i {\n    }\n    tt.return", "%i: index")
    (loop,) = module.find("scf.for")
    assert loop.results == [] and loop.regions[0].entry.arguments[0].type.text == "index"


def test_while_loop():
    module = function(
        """    %r = scf.while (%a = %n) : (i32) -> i32 {
      %c = arith.cmpi slt, %a, %n : i32
      scf.condition(%c) %a : i32
    } do {
    ^bb0(%a: i32 loc(unknown)):
      %b = arith.addi %a, %a : i32
      scf.yield %b : i32
    } loc(unknown)
    tt.return"""
    )
    loop = module.find("scf.while")[0]
    before, after = (region.entry for region in loop.regions)
    assert [value.name for value in loop.operands] == ["%n"] and types(loop) == ["i32"]
    assert before.arguments[0].type.text == after.arguments[0].type.text == "i32"
    assert module.find("scf.condition")[0].operands[1] is before.arguments[0]
    assert module.find("arith.addi")[0].operands[0] is after.arguments[0]
    assert module.find("arith.cmpi")[0].string("predicate") == "slt"


def test_branches_hand_operands_to_blocks():
    module = function(
        """    cf.cond_br %p, ^bb1(%n, %x : i32, f32), ^bb2
  ^bb1(%a: i32, %b: f32):  // 2 preds: ^bb0, ^bb1
    cf.br ^bb1(%a, %b : i32, f32)
  ^bb2:  // pred: ^bb0
    tt.return"""
    )
    condition, jump = module.find("cf.cond_br", "cf.br")
    entry, one, two = module.functions[0].regions[0].blocks
    assert [(s.block, [v.name for v in s.operands]) for s in condition.successors] == [(one, ["%n", "%x"]), (two, [])]
    assert [(s.block, list(s.operands)) for s in jump.successors] == [(one, one.arguments)]
    assert [value.name for value in condition.operands] == ["%p", "%n", "%x"]
    assert (entry.label, one.label, two.label) == ("", "bb1", "bb2") and one.arguments[1].type.text == "f32"
    assert module.find("tt.return")[0].successors == ()


def test_a_value_used_before_its_definition_in_the_text():
    module = function(
        """    cf.br ^bb2
  ^bb1:
    %a = arith.addi %b, %n : i32
    tt.return
  ^bb2:
    %b = arith.muli %n, %n : i32
    cf.br ^bb1"""
    )
    add, multiply = module.find("arith.addi", "arith.muli")
    assert add.operands[0] is multiply.result and multiply.result.uses == [(add, 0)]
    assert multiply.result.definition is multiply and multiply.result.type.text == "i32"


def test_reduction_in_generic_form():
    module = function(
        """    %r:2 = "tt.reduce"(%t, %t) <{axis = 1 : i32}> ({
    ^bb0(%a: f32, %b: f32, %c: f32, %d: f32):
      tt.reduce.return %a, %c : f32, f32
    }) {allocation.offset = 0 : i32} : (tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4xf32>)
    tt.return""",
        "%t: tensor<4x8xf32>",
    )
    (reduce,) = module.find("tt.reduce")
    assert reduce.integer("axis") == 1 and reduce.integer("allocation.offset") == 0
    assert types(reduce) == ["tensor<4xf32>", "tensor<4xf32>"] and len(reduce.operands) == 2
    assert [value.name for value in reduce.regions[0].entry.arguments] == ["%a", "%b", "%c", "%d"]
    assert module.find("tt.reduce.return")[0].operands[1].index == 2


def test_warp_specialisation():
    module = function(
        """    %0 = ttg.warp_specialize(%n, %x) attributes {requestedRegisters = array<i32: 24>}
    default {
      ttg.warp_yield %x : f32
    }
    partition0(%a: i32, %b: f32) num_warps(2) {
      %x = arith.negf %b : f32
      ttg.warp_return
    }
    partition1(%a: i32, %b: f32) num_warps(1) {
      ttg.warp_return
    } : (i32, f32) -> f32 loc("k.py":7:3)
    %1 = arith.addf %0, %0 : f32
    tt.return"""
    )
    (special,) = module.find("ttg.warp_specialize")
    (holder,) = module.find("ttg.warp_specialize.partitions")
    assert holder.implicit and holder.parent is special and not special.implicit
    assert [value.name for value in special.operands] == ["%n", "%x"] and types(special) == ["f32"]
    assert special.location == Location("k.py", 7, 3)
    assert len(special.regions) == 2 and len(holder.regions) == 2
    first, second = (region.entry for region in holder.regions)
    assert [value.type.text for value in first.arguments] == ["i32", "f32"]
    assert "num_warps(2)" in first.region.header and "num_warps(1)" in second.region.header
    assert module.find("arith.negf")[0].operands[0] is first.arguments[1]
    assert special.attributes["requestedRegisters"] == "array<i32: 24>"


def test_calls_and_declarations():
    module = parse(
        """module {
  tt.func private @f(i32) -> (i32, f32)
  tt.func @g(%n: i32) -> f32 {
    %0:2 = tt.call @f(%n) : (i32) -> (i32, f32)
    tt.return %0#1 : f32
  }
}
"""
    )
    declared, defined = module.functions
    assert declared.string("sym_visibility") == "private" and declared.regions[0].entry is None
    (call,) = module.find("tt.call")
    assert call.string("callee") == "f" and types(call) == ["i32", "f32"]
    assert module.find("tt.return")[0].operands == [call.results[1]] and defined.string("sym_name") == "g"


BLOCKED = "#ttg.blocked<{sizePerThread = [1], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]}>"
RESULTS = [
    ("%r = tt.load %q, %m : tensor<8x!tt.ptr<f16>, #b>", ["tensor<8xf16, #b>"]),
    ("%r = tt.load %s : !tt.ptr<bf16>", ["bf16"]),
    ("%r = tt.load %t {boundaryCheck = array<i32: 0>} : !tt.ptr<tensor<8x4xf32>>", ["tensor<8x4xf32>"]),
    ("%r = arith.cmpf ogt, %x, %x : tensor<8xf32, #b>", ["tensor<8xi1, #b>"]),
    ("%r = arith.cmpi eq, %x, %x : i64", ["i1"]),
    ("%r = arith.select %m, %x, %x : tensor<8xi1, #b>, tensor<8xf32, #b>", ["tensor<8xf32, #b>"]),
    ("%r = tt.addptr %q, %x : tensor<8x!tt.ptr<f16>, #b>, tensor<8xi32, #b>", ["tensor<8x!tt.ptr<f16>, #b>"]),
    ("%r = arith.truncf %x : tensor<8xf32, #b> to tensor<8xf16, #b>", ["tensor<8xf16, #b>"]),
    ("%r = tt.fp_to_fp %x, rounding = rtne : tensor<8xf32, #b> -> tensor<8xf8E5M2, #b>", ["tensor<8xf8E5M2, #b>"]),
    ("%r, %u = tt.split %x : tensor<8x2xf32> -> tensor<8xf32>", ["tensor<8xf32>", "tensor<8xf32>"]),
    ("%r = tt.dot %x, %x, %x : tensor<8x8xf16> * tensor<8x8xf16> -> tensor<8x8xf32>", ["tensor<8x8xf32>"]),
    ("%r = tt.unsplat %x : tensor<1xf32, #b>", ["f32"]),
    ("%r = arith.constant true", ["i1"]),
    ("%r = arith.constant dense<true> : tensor<8xi1, #b>", ["tensor<8xi1, #b>"]),
    ("%r = arith.constant dense<[1, 2]> : tensor<2xi32>", ["tensor<2xi32>"]),
    (
        "%r = ttg.async_copy_global_to_local %q, %x mask %m {contiguity = 8 : i32}"
        " : tensor<8x!tt.ptr<f16>, #b> -> <8xf16, #s, #smem, mutable>",
        ["!ttg.async.token"],
    ),
    ("%r = ttg.async_commit_group tokens %x", ["!ttg.async.token"]),
    ("%r = ttg.async_wait %x {num = 2 : i32}", ["!ttg.async.token"]),
    (
        "%r = ttg.local_alloc : () -> !ttg.memdesc<8xf16, #s, #smem, mutable>",
        ["!ttg.memdesc<8xf16, #s, #smem, mutable>"],
    ),
    (
        "%r:2 = ttng.warp_group_dot_wait %x, %m {pendings = 0 : i32} : tensor<8xf32, #b>, f32",
        ["tensor<8xf32, #b>", "f32"],
    ),
    (
        "%r, %u = ttng.tmem_load %x[%m] : !ttg.memdesc<8xf32, #t, #ttng.tensor_memory> -> tensor<8xf32, #b>",
        ["tensor<8xf32, #b>", "!ttg.async.token"],
    ),
    ("ttg.local_store %x, %m : tensor<8xf16, #b> -> !ttg.memdesc<8xf16, #s, #smem, mutable>", []),
    (
        "%r = tt.make_tensor_ptr %x, [%x], [%x], [%x] {order = array<i32: 0>} : <tensor<8xf16>>",
        ["!tt.ptr<tensor<8xf16>>"],
    ),
    ("%r = tt.make_tensor_descriptor %x, [%x], [%x] : <f16>, <tensor<8xf16>>", ["!tt.tensordesc<tensor<8xf16>>"]),
    ("%r = tt.make_tensor_descriptor %x, [%x], [%x] : <f16>, <8xf16, #s>", ["!tt.tensordesc<8xf16, #s>"]),
    ('%r:2 = tt.elementwise_inline_asm "a : b -> c" {pack = 1 : i32} %x : f32 -> i32, f32', ["i32", "f32"]),
    ('%r = tt.elementwise_inline_asm "a : b -> c" {pack = 1 : i32} -> i32', ["i32"]),
    ("%r = other.thing %x : f32", [""]),
    ("%r = other.thing %x : f32 -> f16", ["f16"]),
    ('%r:2 = "other.thing"(%x) {a = 1 : i32} : (f32) -> (f16, tensor<8xf32, #b>)', ["f16", "tensor<8xf32, #b>"]),
]


@pytest.mark.parametrize(("text", "expected"), RESULTS, ids=[text.split("(")[0][:60] for text, _ in RESULTS])
def test_result_types(text, expected):
    module = function(f"    {text}\n    tt.return", "%x: f32, %q: f32, %m: f32, %s: f32, %t: f32")
    assert types(list(module.walk())[1]) == expected


def test_types():
    module = function(
        "    %r = tt.load %p : tensor<8x4x!tt.ptr<f16>, #blocked>\n    tt.return",
        "%p: tensor<8x4x!tt.ptr<f16>, #blocked>, %m: !ttg.memdesc<3x8x4xf32, #shared, #smem, mutable, 4x8x4>, "
        "%s: bf16, %d: !tt.tensordesc<tensor<8x4xf8E4M3FN, #shared>>, %t: !ttg.async.token, %f: tensor<2xf4E2M1FN>, "
        "%q: !tt.ptr<i64>",
    )
    pointers, memory, scalar, descriptor, token, small, pointer = (
        value.type for value in module.functions[0].regions[0].entry.arguments
    )
    assert (pointers.kind, pointers.shape, pointers.element) == ("tensor", (8, 4), "!tt.ptr<f16>")
    assert pointers.pointee.text == "f16" and pointers.bits == 64 and pointers.numel == 32
    assert (memory.kind, memory.element, memory.shape) == ("memdesc", "f32", (3, 8, 4))
    assert (memory.encoding, memory.memory_space, memory.mutable) == ("#shared", "#smem", True)
    assert memory.allocation == (4, 8, 4)
    assert (scalar.kind, scalar.element, scalar.bits, scalar.shape) == ("scalar", "bf16", 16, ())
    assert (descriptor.kind, descriptor.element, descriptor.bits, descriptor.shape) == (
        "tensordesc",
        "f8E4M3FN",
        8,
        (8, 4),
    )
    assert descriptor.encoding == "#shared" and token.kind == "token" and small.bits == 4
    assert pointer.kind == "ptr" and pointer.pointee.text == "i64" and pointer.pointee.pointee is None
    loaded = module.find("tt.load")[0].result.type
    assert (loaded.text, loaded.is_pointer, loaded.encoding) == ("tensor<8x4xf16, #blocked>", False, "#blocked")


def test_layouts_are_resolved_in_their_own_module():
    text = """#b = #ttg.blocked<{order = [ORDER]}>
#s = #ttg.slice<{dim = 1, parent = #b}>
module {
  tt.func @f(%x: tensor<8xf32, #s>) {
    %y = arith.negf %x : tensor<8xf32, #s>
    tt.return
  }
}
"""
    for order in ("0", "1"):
        module = parse(text.replace("ORDER", order))
        resolved = f"#ttg.slice<{{dim = 1, parent = #ttg.blocked<{{order = [{order}]}}>}}>"
        assert module.find("arith.negf")[0].result.layout == resolved
        assert module.resolve("tensor<8xf32, #s>") == f"tensor<8xf32, {resolved}>"
        assert module.layouts["#b"] == f"#ttg.blocked<{{order = [{order}]}}>"


ATTRIBUTES = [
    ("%r = tt.load %x cacheModifier = ca evictionPolicy = evict_first : !tt.ptr<f32>", "cacheModifier", "ca"),
    ("%r = tt.load %x cacheModifier = ca evictionPolicy = evict_first : !tt.ptr<f32>", "evictionPolicy", "evict_first"),
    ("%r = tt.load %x {isVolatile = true} : !tt.ptr<f32>", "isVolatile", "true"),
    ("%r = arith.cmpf ogt, %x, %x : f32", "predicate", "ogt"),
    ("%r = tt.get_program_id y : i32", "axis", "y"),
    ("%r = tt.atomic_rmw fadd, acq_rel, gpu, %x, %x : (f32, f32) -> f32", "atomic_rmw_op", "fadd"),
    ("%r = tt.atomic_rmw fadd, acq_rel, gpu, %x, %x : (f32, f32) -> f32", "sem", "acq_rel"),
    ("%r = tt.atomic_rmw fadd, acq_rel, gpu, %x, %x : (f32, f32) -> f32", "scope", "gpu"),
    ("%r = arith.constant 64 : i32", "value", "64"),
    ("%r = arith.constant true", "value", "true"),
    ("%r = arith.constant {a.b = 1 : i32} dense<0.0> : tensor<8xf32>", "value", "dense<0.0>"),
    ("%r = arith.constant {a.b = 1 : i32} false", "a.b", "1 : i32"),
    ("%r = arith.constant {a.b = 1 : i32} false", "value", "false"),
    ("%r = tt.dot %x, %x, %x, inputPrecision = tf32 : f32 * f32 -> f32", "inputPrecision", "tf32"),
    ("%r = tt.dot_scaled %x scale %x, %x scale %x, %x lhs = e4m3 rhs = e2m1 {f = true} : f32 -> f32", "rhs", "e2m1"),
    ("%r = arith.addf %x, %x fastmath<fast> : f32", "fastmath", "fast"),
    ("%r = arith.addi %x, %x overflow<nsw, nuw> : i32", "overflowFlags", "nsw, nuw"),
    ('tt.assert %x, "a \\22: {b = 1}" : i1', "message", '"a \\22: {b = 1}"'),
    ('tt.print " x: " {hex = false, isSigned = array<i32: 1>} : %x : i32', "prefix", '" x: "'),
    ('tt.print " x: " {hex = false, isSigned = array<i32: 1>} : %x : i32', "isSigned", "array<i32: 1>"),
    ("ttng.tc_gen5_mma %x, %x, %x, %x, %x {is_async, k = 1 : i32} : f32", "is_async", "unit"),
    ('%r = tt.elementwise_inline_asm "mov $0, %x;" {pure = true} %x : f32 -> f32', "asm_string", '"mov $0, %x;"'),
]


@pytest.mark.parametrize(("text", "name", "value"), ATTRIBUTES, ids=[f"{t.split()[2]}-{n}" for t, n, _ in ATTRIBUTES])
def test_attributes(text, name, value):
    assert list(function(f"    {text}\n    tt.return").walk())[1].attributes[name] == value


def test_no_attributes_are_read_out_of_types():
    module = function(
        "    %r = arith.negf %x : tensor<8xf32, #ttg.slice<{dim = 1, parent = #ttg.b<{n = 2}>}>>\n    tt.return"
    )
    assert dict(module.find("arith.negf")[0].attributes) == {}


def test_strings_hide_what_looks_like_code():
    module = function(
        '    tt.assert %p, "%y ^bb1 // loc(#loc9) {" : i1\n    tt.print "a\\0Ab" : %n : i32\n    tt.return'
    )
    (check,) = module.find("tt.assert")
    assert [value.name for value in check.operands] == ["%p"] and check.string("message") == "%y ^bb1 // loc(#loc9) {"
    assert check.location is None and module.find("tt.print")[0].string("prefix") == "a\nb"


LOCATIONS = """module {
  tt.func @k(%x: f32 loc(unknown)) {
    %a = arith.negf %x : f32 loc(#loc1)
    %b = arith.negf %x : f32 loc(#loc4)
    %c = arith.negf %x : f32 loc(callsite("f"("/b.py":2:3) at callsite("/c.py":4:5 at "g"("/d.py":6:7))))
    tt.assert %x, "m" : f32 loc(#loc3)
    %d = arith.negf %x : f32 loc(unknown)
    %e = arith.negf %x : f32 loc(callsite(unknown at #loc3))
    %f = arith.negf %x : f32 loc(fused<"m">[unknown, #loc1, #loc3])
    %g = arith.negf %x : f32 loc("only a name")
    %h = arith.negf %x : f32 loc("/j\\C3\\BC.py":8:9)
    %i = arith.negf %x : f32
    %j = arith.negf %x : f32 loc("/r.py":1:2 to :8)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc("/a.py":9:1)
#loc1 = loc("v"("w"(#loc2)))
#loc2 = loc("/a.py":10:4)
#loc3 = loc("/a.py":11:6)
#loc4 = loc(callsite(#loc1 at #loc5))
#loc5 = loc(callsite(#loc3 at #loc))
"""


def test_locations():
    module = parse(LOCATIONS)
    found = [operation.location for operation in module.find("arith.negf")]
    inlined = (Location("/a.py", 11, 6), Location("/a.py", 9, 1))
    assert found == [
        Location("/a.py", 10, 4, "v"),
        Location("/a.py", 10, 4, "v", inlined),
        Location("/b.py", 2, 3, "f", (Location("/c.py", 4, 5), Location("/d.py", 6, 7, "g"))),
        None,
        Location("/a.py", 11, 6),
        Location("/a.py", 10, 4, "v"),
        None,
        Location("/jü.py", 8, 9),
        None,
        Location("/r.py", 1, 2),
    ]
    assert module.find("tt.assert")[0].location == Location("/a.py", 11, 6)
    assert module.functions[0].location == module.operation.location == Location("/a.py", 9, 1)


def test_columns_are_one_based_where_triton_counts_from_zero():
    module = parse(LOCATIONS.replace('#loc = loc("/a.py":9:1)', '#loc = loc("/a.py":9:0)'))
    assert module.find("tt.assert")[0].location == Location("/a.py", 11, 7)
    assert module.functions[0].location == Location("/a.py", 9, 1)


def test_a_place_nothing_defines_is_bad_input():
    module = parse(LOCATIONS.replace("#loc3 = ", "#loc33 = "))
    with pytest.raises(InputError, match=r"#loc3 is not defined; the text seems cut") as caught:
        _ = module.find("tt.assert")[0].location
    assert caught.value.line == 6


def test_unknown_operations_are_opaque():
    module = function(
        """    %r:2 = foo.loop %i = %n to %n carry(%c = %x) -> (f32, f32) {
      foo.use %i, %c
      foo.next
    } {foo.stages = 2 : i32}
    foo.end %r#1 #foo<bar> @symbol [3, 4]
    tt.return"""
    )
    loop, use, end = module.find("foo.loop", "foo.use", "foo.end")
    assert [value.name for value in loop.operands] == ["%n", "%n", "%x"]
    assert [value.name for value in loop.regions[0].entry.arguments] == ["%i", "%c"]
    assert use.operands == loop.regions[0].entry.arguments and types(loop) == ["f32", "f32"]
    assert loop.regions[0].entry.arguments[0].type.kind == "unknown" and end.operands == [loop.results[1]]
    assert loop.integer("foo.stages") == 2


def test_hand_written_text_may_span_lines_and_hold_comments():
    module = parse(
        """// RUN: kcontract check %s
tt.func @f(%a: f32,  // the first
           %b: f32) {
  // expected-error @+1 {{text}}
  %c = arith.addf %a,
         %b : f32
  %d = arith.select %b, %a, %c
    : f32
  tt.return
}
"""
    )
    assert [operation.line for operation in module.walk()] == [2, 5, 7, 9]
    assert [value.name for value in module.find("arith.addf")[0].operands] == ["%a", "%b"]
    assert types(module.find("arith.select")[0]) == ["f32"]


def test_import_is_light():
    import subprocess
    import sys

    code = (
        "import sys, kcontract.ir.ttgir; print(sorted({'triton', 'lark', 'numpy', 'torch', 'z3'} & set(sys.modules)))"
    )
    folder = str(pathlib.Path(__file__).parents[3] / "src")
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=folder)
    assert run.stdout == "[]\n"
