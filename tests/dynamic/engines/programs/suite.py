"""A test suite that, as Triton's own tests do, gives each test a cache folder that is gone afterwards."""

import launched
import pytest
import torch


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("block", [32, 64])
def test_add(block):
    x = torch.ones(64, device="cuda")
    launched.add[(2,)](x, x, x, 64, BLOCK=block)
