"""A listener that the user sets, before or after, lives on beside ours, and comes back as it was."""

from __future__ import annotations

import pytest

from kcontract.hook.chain import Chain, attach

from .conftest import World


class Knobs:
    listener = None

    def copy(self) -> Knobs:
        other = type(self)()
        other.__dict__.update(self.__dict__)
        return other


class Log(list):
    def ours(self, **event: object) -> BaseException | None:
        self.append("ours")
        return event.get("refusal")  # type: ignore[return-value]

    def users(self, **event: object) -> None:
        self.append("user")


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def knobs(log: Log) -> Knobs:
    kind = type("Fresh", (Knobs,), {"listener": None})
    attach(kind(), "listener", log.ours)
    return kind()


def test_both_run_and_the_user_gets_none_back(knobs: Knobs, log: Log) -> None:
    users = log.users
    before = knobs.listener
    knobs.listener = users
    knobs.listener()
    knobs.listener = before
    assert "listener" in vars(knobs) and vars(knobs)["listener"] is None
    knobs.listener()
    knobs.listener = None
    knobs.listener()
    assert log == ["ours", "user", "ours", "ours"]


def test_a_listener_set_before_stays(log: Log) -> None:
    kind = type("Fresh", (Knobs,), {})
    knobs, users = kind(), log.users
    knobs.listener = users
    attach(knobs, "listener", log.ours)
    knobs.listener()
    assert log == ["ours", "user"]
    assert vars(knobs)["listener"] is users


def test_save_and_restore_hands_back_the_users_own_object(knobs: Knobs, log: Log) -> None:
    users = log.users
    knobs.listener = users
    saved = knobs.listener
    knobs.listener = None
    knobs.listener = saved
    assert vars(knobs)["listener"] is users
    knobs.listener()
    assert log == ["ours", "user"]


def test_attached_twice_runs_once(knobs: Knobs, log: Log) -> None:
    attach(knobs, "listener", log.ours)
    knobs.listener()
    assert log == ["ours"]


def test_reading_twice_gives_one_object_and_the_users_attributes(knobs: Knobs) -> None:
    def users(**event: object) -> None: ...

    users.calls = 7  # type: ignore[attr-defined]
    knobs.listener = users
    assert knobs.listener is knobs.listener
    assert isinstance(knobs.listener, Chain)
    assert knobs.listener.calls == 7
    with pytest.raises(AttributeError, match="nothing"):
        knobs.listener.nothing  # noqa: B018


def test_the_users_exception_passes_unchanged(knobs: Knobs) -> None:
    error = ZeroDivisionError("the user's")

    def users(**event: object) -> None:
        raise error

    knobs.listener = users
    with pytest.raises(ZeroDivisionError) as caught:
        knobs.listener(refusal=ValueError("ours"))
    assert caught.value is error


def test_the_user_sees_a_refused_kernel_first(knobs: Knobs, log: Log) -> None:
    knobs.listener = log.users
    with pytest.raises(ValueError, match="ours"):
        knobs.listener(refusal=ValueError("ours"))
    assert log == ["ours", "user"]


def test_delete_and_copy(knobs: Knobs, log: Log) -> None:
    knobs.listener = log.users
    copy = knobs.copy()
    del knobs.listener
    knobs.listener()
    copy.listener()
    assert log == ["ours", "ours", "user"]


def test_a_users_wrapper_around_what_it_read(world: World) -> None:
    code = """
import triton, kernels_used as k
from triton import knobs
events = []
before = knobs.compilation.listener
def mine(**event):
    events.append(event["cache_hit"])
    if before: before(**event)
with knobs.compilation.scope():
    knobs.compilation.listener = mine
    k.compile(k.hazard)
    k.compile(k.hazard)
    knobs.compilation.reset()
    k.compile(k.hazard, 256)
assert vars(knobs.compilation).get("listener") is None
k.compile(k.clean)
assert events == [False, True, False], events
"""
    output = world.run(code, FAKE_RULES="1")
    assert world.checked() == ["hazard", "hazard", "clean"]
    assert output.count("found a hazard") == 2


def test_fresh_knobs_of_tritons_own_tests(world: World) -> None:
    code = """
import triton, kernels_used as k
triton.knobs.compilation = triton.knobs.compilation.copy().reset()
k.compile(k.clean)
"""
    world.run(code)
    assert world.checked() == ["clean"]
