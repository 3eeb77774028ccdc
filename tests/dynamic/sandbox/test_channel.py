"""Frames and headers from the other side are checked before they are used."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import pytest
import torch

from kcontract.dynamic.sandbox import channel

HEADER = {"dtype": "float32", "shape": [4], "stride": [1], "at": 0}


@pytest.fixture
def arena() -> channel.Arena:
    made = channel.Arena(os.memfd_create("test"), 1 << 12)
    made.write(torch.arange(4.0).numpy())
    return made


def test_a_tensor_goes_through(arena: channel.Arena) -> None:
    for value in (
        torch.arange(12.0).reshape(3, 4).t(),
        torch.zeros(0, 3),
        torch.tensor(True),
        torch.ones(2).bfloat16(),
    ):
        arena.clear()
        found = channel.unpack(torch, channel.pack(torch, value, arena), arena)
        assert torch.equal(found, value) and found.stride() == value.stride() and found.dtype == value.dtype


@pytest.mark.parametrize(
    "wrong",
    [
        {"dtype": "object"}, {"dtype": ["float32"]}, {"shape": [-4]}, {"shape": [4, 1]}, {"shape": "4"}, {"at": -1},
        {"at": "0"}, {"at": 1 << 40}, {"shape": [1 << 40]}, {"shape": [1 << 40], "stride": [0]}, {"stride": [1 << 30]},
        {"shape": [1] * 17, "stride": [1] * 17}, {"at": None}, {"shape": [True]},
    ],
)  # fmt: skip
def test_a_header_that_makes_no_sense_is_refused(arena: channel.Arena, wrong: dict[str, Any]) -> None:
    with pytest.raises(channel.Garbled):
        channel.unpack(torch, {**HEADER, **wrong}, arena)


def test_one_frame_cannot_make_the_reader_hold_more_than_the_file(arena: channel.Arena) -> None:
    with pytest.raises(channel.Garbled, match="more than 4096 bytes"):
        for _ in range(300):
            channel.unpack(torch, HEADER, arena)
    arena.clear()
    assert channel.unpack(torch, HEADER, arena).tolist() == [0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "data", [b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x02xx", b"\xff\xff\xff\xff", b"\x00\x00\x00\x01{"]
)
def test_a_frame_that_is_none_is_refused(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        with pytest.raises(channel.Garbled):
            channel.receive(ours, 1.0)


def test_a_frame_that_drips_in_is_late_as_a_whole() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"\x00\x00")
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.receive(ours, 0.05)
        assert time.monotonic() - start < 5
