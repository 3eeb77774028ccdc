"""Runs the Triton kernels' PTX for a target in kcontract's simulator, in bfloat16, and prints the errors as JSON.

python simulated.py 100 scalar
"""

from __future__ import annotations

import json
import sys

import torch
from numbers_against_float64 import errors

from kcontract.dynamic.engines.simulator.driver import simulate

if __name__ == "__main__":
    target, channelwise = int(sys.argv[1]), sys.argv[2] == "channelwise"
    with simulate(f"sm_{target}"):
        # On sm_90 with a scalar gate, K = V = 128 takes the Hopper kernels.
        width = 128 if target == 90 and not channelwise else 64
        case = {"HV": 2, "K": width, "V": width, "dtype": torch.bfloat16, "channelwise": channelwise}
        print(json.dumps(errors(70, **case, major=target // 10)))
