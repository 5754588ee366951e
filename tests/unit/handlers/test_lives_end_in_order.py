# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf itself, fed out of a mirror: finalizers come, hold an object back, and go; nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import jsonpatch
import kopf
import pytest

from fakes.clock import FakeClock
from fakes.pool_scaling import leader_of
from ullage.api.reasons import Reason
from ullage.api.times import rfc3339
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD
from ullage.handlers.ends import Left, Life, register
from ullage.handlers.frame import Bridge, KopfFrame, Register, configure
from ullage.handlers.mirror import Mirror
from ullage.ports import INFERENCE_DEPLOYMENT, Invalid, JsonObject, JsonPatch, Kind, Unavailable

KIND = INFERENCE_DEPLOYMENT
WAIT_S = 60
DELETED_S = 1_767_225_600.0


def an_object(name: str = "web", **metadata: object) -> dict[str, Any]:
    return {
        "apiVersion": KIND.api_version,
        "kind": KIND.kind,
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "generation": 1,
            **metadata,
        },
        "spec": {"batching": {}},
    }


class Server:
    """Objects as the API server keeps them; each write comes back as an event."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.objects: dict[str, dict[str, Any]] = {}
        self.patches: list[object] = []
        self.fails = 0

    def put(self, item: dict[str, Any]) -> None:
        held = self.objects.get(item["metadata"]["name"])
        version = int(held["metadata"]["resourceVersion"]) if held else 1_000_000
        item["metadata"]["resourceVersion"] = str(version + 1)
        self.objects[item["metadata"]["name"]] = item
        if item["metadata"].get("deletionTimestamp") and not item["metadata"].get("finalizers"):
            del self.objects[item["metadata"]["name"]]
            self.mirror.remove(KIND, item)
        else:
            self.mirror.upsert(KIND, item)

    def delete(self, name: str) -> None:
        self.change(name, deletionTimestamp=rfc3339(DELETED_S))

    def change(self, name: str, **metadata: object) -> None:
        held = self.objects[name]
        self.put({**held, "metadata": {**held["metadata"], **metadata}})

    async def send(self, kind: Kind, namespace: str, name: str, patch: JsonPatch) -> JsonObject:
        self.patches.append(patch)
        if self.fails:
            self.fails -= 1
            raise Unavailable(503, "not now")
        try:
            after = jsonpatch.apply_patch(self.objects[name], patch)
        except jsonpatch.JsonPatchTestFailed as error:
            raise Invalid(422, str(error)) from error
        self.put(after)
        return after


def finalizers(server: Server, name: str = "web") -> list[str] | None:
    held = server.objects.get(name)
    return held["metadata"].get("finalizers", []) if held else None


async def reached(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not look():
            await asyncio.sleep(0.01)


class Ends:
    """A handler of deletions that a test lets through."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.free: set[str] = set()
        self.faults = 0

    async def left(self, name: str) -> bool:
        self.called.append(name)
        if self.faults:
            self.faults -= 1
            raise RuntimeError("a fault of ours")
        return name not in self.free

    def register(self, registry: kopf.OperatorRegistry, bridge: Bridge) -> None:
        @kopf.on.delete(
            KIND.group,
            KIND.version,
            KIND.plural,
            registry=registry,
            id="ends",
            when=lambda body, **_: bool(body.get("life")),
            backoff=0.1,
        )
        async def ends(name: str, **_: Any) -> None:
            while await bridge.call(self.left(name)):
                await asyncio.sleep(0.01)


def has_batching(item: JsonObject) -> bool:
    spec = item.get("spec")
    return isinstance(spec, dict) and "batching" in spec


def leading(server: Server, ends: Ends) -> AbstractAsyncContextManager[KopfFrame]:
    return running(server, ends.register)


@asynccontextmanager
async def running(server: Server, register: Register) -> AsyncIterator[KopfFrame]:
    frame = KopfFrame(server.mirror)
    task = asyncio.create_task(frame.run(server.send, register))
    try:
        yield frame
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await reached(lambda: not frame.stuck)


@pytest.fixture
def server() -> Server:
    return Server(Mirror({KIND: has_batching}))


async def test_an_object_is_held_until_its_end_is_done(server: Server) -> None:
    ends = Ends()
    async with leading(server, ends):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])
        server.delete("web")
        await reached(lambda: "web" in ends.called)
        assert finalizers(server) == [FINALIZER]
        ends.free.add("web")
        await reached(lambda: finalizers(server) is None)


async def test_a_user_without_a_name_will_do(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the image: user 65532 is in no list of users."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", nameless)
    async with leading(server, Ends()):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])


async def test_the_next_leader_goes_on_where_the_last_one_was(server: Server) -> None:
    ends = Ends()
    server.put(an_object())
    async with leading(server, ends):
        await reached(lambda: finalizers(server) == [FINALIZER])
        server.delete("web")
        await reached(lambda: "web" in ends.called)
    assert finalizers(server) == [FINALIZER]
    ends.free.add("web")
    async with leading(server, ends):
        await reached(lambda: finalizers(server) is None)


async def test_finalizers_of_others_stay(server: Server) -> None:
    ends = Ends()
    ends.free.add("web")
    async with leading(server, ends):
        server.put(an_object(finalizers=["others/first"]))
        await reached(lambda: finalizers(server) == ["others/first", FINALIZER])
        server.change("web", finalizers=["others/late", "others/first", FINALIZER])
        server.delete("web")
        await reached(lambda: finalizers(server) == ["others/late", "others/first"])


async def test_a_handler_that_fails_is_tried_again(server: Server) -> None:
    ends = Ends()
    ends.faults = 2
    ends.free.add("web")
    async with leading(server, ends):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])
        server.delete("web")
        await reached(lambda: finalizers(server) is None)
    assert ends.called == ["web"] * 3
    assert len(server.patches) == 2, "to try again is nothing to write"


@pytest.mark.parametrize(
    "said", ['{"delayed": "2999-01-01T00:00:00Z"}', '{"success": true}', "{" * 100_000, "7"]
)
async def test_what_a_tenant_says_of_a_handler_is_not_read(server: Server, said: str) -> None:
    ends = Ends()
    async with leading(server, ends):
        server.put(an_object(annotations={"kopf.zalando.org/ends": said}))
        await reached(lambda: finalizers(server) == [FINALIZER])
        server.delete("web")
        await reached(lambda: "web" in ends.called)
        ends.free.add("web")
        await reached(lambda: finalizers(server) is None)


async def test_nothing_is_written_while_nothing_changes(server: Server) -> None:
    ends = Ends()
    async with leading(server, ends):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])
        patches = len(server.patches)
        for number in range(200):
            server.change("web", generation=number + 2)
        server.put(an_object("other"))
        await reached(lambda: finalizers(server, "other") == [FINALIZER])
        await asyncio.sleep(0.2)
        assert len(server.patches) == patches + 1


async def test_a_watch_that_was_silent_for_long_misses_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(settings: kopf.OperatorSettings, mirror: Mirror) -> None:
        configure(settings, mirror)
        settings.watching.inactivity_timeout = 0.05

    monkeypatch.setattr("ullage.handlers.frame.configure", impatient)
    async with leading(server, Ends()):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])
        await asyncio.sleep(0.5)
        server.put(an_object("late"))
        await reached(lambda: finalizers(server, "late") == [FINALIZER])


async def test_an_object_that_needs_no_care_any_more_is_let_go(server: Server) -> None:
    async with leading(server, Ends()):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])
        held = server.objects["web"]
        server.put({**held, "spec": {}})
        await reached(lambda: finalizers(server) == [])


async def test_a_thread_that_ends_late_is_told_and_lets_no_other_begin(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, free = threading.Event(), threading.Event()

    async def lingers(**_: Any) -> None:
        begun.set()
        while not free.is_set():
            await asyncio.sleep(0.01)

    monkeypatch.setattr("kopf.operator", lingers)
    monkeypatch.setattr("ullage.handlers.frame.THREAD_ENDS_S", 0.0)
    frame, ends = KopfFrame(server.mirror), Ends()
    task = asyncio.create_task(frame.run(server.send, ends.register))
    await reached(begun.is_set)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert frame.stuck
    with pytest.raises(RuntimeError, match="did not end"):
        await frame.run(server.send, ends.register)
    free.set()
    await reached(lambda: not frame.stuck)


async def test_a_write_that_fails_is_made_again(server: Server) -> None:
    server.fails = 2
    async with leading(server, Ends()):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])


def a_life(left: Callable[[], Left], *, owns: bool = True) -> Register:
    """Registers an end of ours."""
    life = Life(
        kind=KIND,
        reason=Reason.ROUTER_DRAINS,
        lives=has_batching,
        left=lambda *_: left(),
        owns=owns,
    )
    leader = leader_of(ClusterState(lambda _: None), FakeClock(DELETED_S))
    return lambda registry, bridge: register(registry, bridge, life, leader)


async def test_an_end_that_cannot_be_looked_at_is_let_go_in_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def left() -> Left:
        nonlocal looks
        looks += 1
        raise OverflowError("math range error")

    monkeypatch.setitem(KINDS_HELD, KIND, 0.5)  # type: ignore[misc]
    monkeypatch.setattr("ullage.handlers.ends.END_FAILED_S", 0.05)
    async with running(server, a_life(left)):
        server.put(an_object())
        await reached(lambda: finalizers(server) == [FINALIZER])
        server.delete("web")
        await reached(lambda: finalizers(server) is None)
    assert looks >= 1


@pytest.mark.parametrize("owns", [True, False])
async def test_who_keeps_what_an_object_made_waits_for_what_it_has_not_made(
    server: Server, monkeypatch: pytest.MonkeyPatch, owns: bool
) -> None:
    there, looks = True, 0

    def left() -> Left:
        nonlocal looks
        looks += 1
        return Left(text="it is" if there else "")

    monkeypatch.setattr("ullage.handlers.ends.END_LOOK_S", 0.01)
    async with running(server, a_life(left, owns=owns)):
        server.put(an_object(finalizers=["orphan"]))
        await reached(lambda: finalizers(server) == ["orphan", FINALIZER])
        server.delete("web")
        if not owns:
            await reached(lambda: looks > 2)
            assert finalizers(server) == ["orphan", FINALIZER]
            there = False
        await reached(lambda: finalizers(server) == ["orphan"])
    assert bool(looks) is not owns
