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
        print(json.dumps(errors(70, HV=2, dtype=torch.bfloat16, channelwise=channelwise, major=target // 10)))
