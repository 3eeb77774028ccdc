"""Compile a kernel for a GPU that need not be here: plain Triton, nothing of kcontract."""

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


def compile_for(target, kernel, signature, constexprs, **options):
    """The compiled kernel for ``target`` (``sm_100``); ``signature`` maps arguments to Triton types."""
    full = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
    attributes = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(full) if full[name].startswith("*")}
    source = ASTSource(kernel, full, constexprs, attributes)
    return triton.compile(source, target=GPUTarget("cuda", int(target.removeprefix("sm_")), 32), options=options)
