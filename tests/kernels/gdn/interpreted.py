"""Runs the Triton kernels in Triton's interpreter, on the CPU, and prints each case's errors against float64 as JSON.

A script, because TRITON_INTERPRET must stand before Triton is imported. float32 only: the interpreter's bfloat16
products are wrong.
"""

from __future__ import annotations

import json
import os

os.environ["TRITON_INTERPRET"] = "1"

from numbers_against_float64 import errors

CASES = {
    "tail and grouped heads": {"T": 65, "HV": 2},
    "split in three": {"T": 140, "segments": 3},
    "packed, one sequence empty": {"T": 80, "cuts": [0, 70, 70, 71, 80]},
    "one token": {"T": 1},
    "strong gate": {"T": 64, "strength": 20.0},
    "tiles of 32 rows": {"T": 70, "HV": 2, "K": 128, "major": 10},
    "tiles of 16 rows": {"T": 70, "K": 256, "major": 10},
    "channel-wise, tiles of 16 rows": {"T": 70, "K": 256, "major": 10, "channelwise": True},
    "channel-wise, grouped": {"T": 20, "HV": 2, "channelwise": True},
    "channel-wise, packed and split": {"T": 90, "cuts": [0, 20, 90], "segments": 2, "channelwise": True},
    "channel-wise, strong": {"T": 64, "strength": 20.0, "channelwise": True},
}
if __name__ == "__main__":
    print(json.dumps({name: errors(**case) for name, case in CASES.items()}))
