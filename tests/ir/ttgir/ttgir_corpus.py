"""Writes the IR of many kernels to a folder: ``python ttgir_corpus.py FOLDER [--every N]``; stops before ptxas.

Each kernel of ``ttgir_kernels`` and ``ttgir_gluon_kernels``, for each element type and target, gives a ``.source``,
``.ttir`` and ``.ttgir``. What Triton refuses (a type a target lacks) is counted; the last line printed is JSON.
"""

import itertools
import json
import pathlib
import sys
from collections import Counter

import triton
import ttgir_gluon_kernels
import ttgir_kernels
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend


def modules(kernel, signature, constants, capability, options, source=ASTSource):
    """The text of a kernel after each stage up to TTGIR, by the cache's file ending."""
    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    types = {name: signature.get(name, "constexpr") for name in kernel.arg_names}
    attributes = {(i,): [["tt.divisibility", 16]] for i, kind in enumerate(types.values()) if kind[0] == "*"}
    src = source(kernel, types, constants, attributes)
    parsed = backend.parse_options({**src.parse_options(), **options})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen = backend.get_codegen_implementation(parsed)
    module = src.make_ir(target, parsed, codegen, backend.get_module_map(), context)
    texts = {"source": str(module)}
    stages = {}
    backend.add_stages(stages, parsed, src.language)
    for ending, stage in stages.items():
        if ending == "llir":
            return texts
        module = stage(module, {})
        texts[ending] = str(module)
    raise AssertionError("no stage after TTGIR")


def cases():
    """(name, arguments of ``modules``) of every kernel, element type and target."""
    for number, (kernel, signature, constants, types, targets, options) in enumerate(ttgir_kernels.CASES):
        for element, capability in itertools.product(types, targets):
            filled = {name: kind.replace("$", element) for name, kind in signature.items()}
            name = f"{number:03}-{kernel.__name__}-{element or 'fixed'}-sm{capability}"
            yield name, (kernel, filled, constants, capability, options)
    for number, (kernel, signature, constants, targets, options) in enumerate(ttgir_gluon_kernels.CASES):
        for capability in targets:
            name = f"{number:03}-gluon-{kernel.__name__}-sm{capability}"
            yield name, (kernel, signature, constants, capability, options, ttgir_gluon_kernels.SOURCE)


def main(folder, every):
    written, refused = Counter(), {}
    for name, arguments in itertools.islice(cases(), 0, None, every):
        try:
            texts = modules(*arguments)
        except Exception as error:  # whatever Triton raises: the case is counted, and named in the summary
            refused[name] = f"{type(error).__name__}: {error}"[:200]
            continue
        for ending, text in texts.items():
            (folder / f"{name}.{ending}").write_text(text)
            written[ending] += 1
    print(json.dumps({"triton": triton.__version__, "written": written, "refused": refused}))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), int(sys.argv[3]) if "--every" in sys.argv else 1)
