"""Runs the Triton kernels' PTX for a target in kcontract's simulator, and prints the errors as JSON.

python simulated.py 100 scalar 256 64 bfloat16
"""

from __future__ import annotations

import json
import sys

import torch
from numbers_against_float64 import errors

from kcontract.dynamic.engines.simulator.driver import simulate

if __name__ == "__main__":
    target, gate, K, V, dtype = sys.argv[1:]
    case = {"K": int(K), "V": int(V), "dtype": getattr(torch, dtype), "channelwise": gate == "channelwise"}
    with simulate(f"sm_{target}"):
        print(json.dumps(errors(70, HV=2, **case, major=int(target) // 10)))
