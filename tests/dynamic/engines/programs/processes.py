"""Launches in children of both kinds and ends with a status of its own."""

import multiprocessing
import sys

import launched
import torch


def work(block):
    x = torch.ones(32, device="cuda")
    launched.add[(1,)](x, x, x, 32, BLOCK=block)


if __name__ == "__main__":
    for kind, block in (("fork", 32), ("spawn", 64)):
        child = multiprocessing.get_context(kind).Process(target=work, args=(block,))
        child.start()
        child.join()
        assert child.exitcode == 0
    sys.exit(5)
