"""Public operations that the sweep does not call, each with the reason. Imports no library."""

_PARALLEL = "needs a torch.distributed process group of several GPUs"

LEFT_OUT: dict[str, dict[str, str]] = {
    "liger": {
        "LigerFusedLinearScaledCrossEntropyFunction": "CuTe DSL on sm_90, plain PyTorch elsewhere: launches no kernel",
        "LigerFusedLinearScaledCrossEntropyTPFunction": _PARALLEL,
        "LigerVocabParallelCEFunction": _PARALLEL,
    },
    "fla": {
        "fused_chunk_delta_rule": "removed from the library: the name only raises",
        "fused_chunk_gla": "removed from the library: the name only raises",
        "deltaformer_attn": "its module imports fla.layers, which is in flash-linear-attention and not in fla-core",
        "parallel_moba": "needs flash-attn, a CUDA extension that does not build without a GPU toolchain",
        "chunk_atk_bwd": "the backward of chunk_precond_gated_delta_rule, which is a case, has what it takes",
        "softplus": "a function for kernels, which is no kernel itself",
        "chunk_titans_linear": "plain PyTorch, launches no kernel",
        "LongConvolution": "plain PyTorch (FFT), launches no kernel",
        "ImplicitLongConvolution": "plain PyTorch (FFT), launches no kernel",
        **dict.fromkeys(
            ("LinearLossParallel", "NormParallel", "SwiGLULinearParallel", "PrepareModuleWeight"), _PARALLEL
        ),
    },
}
