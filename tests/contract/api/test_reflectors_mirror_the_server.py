# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Whatever the server does to a stream, the sink ends up holding what the server holds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest

from fakes.apiserver import FakeApiServer, make_cluster
from fakes.apiserver.client import QUICK
from fakes.mirror import Mirror
from ullage.cluster.values.streams import GPU_NODES, Stream
from ullage.kube.clock import SystemClock
from ullage.kube.reflector import Reflector, ReflectorTimes
from ullage.ports import GPU_NODE, POD, Selector

TIMES = ReflectorTimes(page=3, watch_s=30, first_pause_s=0.005, max_pause_s=0.02)
STALLING = replace(TIMES, watch_s=1)


@dataclass(kw_only=True)
class Followed:
    """One running reflector, its sink, and what it poked."""

    api: FakeApiServer
    reflector: Reflector
    mirror: Mirror
    stream: Stream
    pokes: list[str] = field(default_factory=list)

    def truth(self) -> dict[str, str]:
        found = self.api.objects(self.stream.kind)
        if self.stream.selector.labels:
            found = [o for o in found if o["metadata"].get("labels") == {"mine": "yes"}]
        return {o["metadata"]["name"]: o["metadata"]["resourceVersion"] for o in found}

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(0.002)

    async def agrees(self) -> None:
        """Wait until sink and server hold the same."""
        await self.until(lambda: self.mirror.held == self.truth())

    async def watching(self) -> None:
        await self.until(lambda: self.reflector.synced and self.api.open_watches > 0)


@asynccontextmanager
async def following(
    api: FakeApiServer,
    times: ReflectorTimes = TIMES,
    stream: Stream = GPU_NODES,
    grace_s: float = 1.0,
) -> AsyncIterator[Followed]:
    """Run a reflector against the server."""
    limits = replace(QUICK, watch_grace_s=grace_s, read_tries=1)
    async with make_cluster(api.url, limits=limits) as cluster:
        mirror, pokes = Mirror(), list[str]()
        reflector = Reflector(
            stream,
            source=cluster,
            sink=mirror,
            clock=SystemClock(),
            poke=pokes.append,
            times=times,
            seed=1,
        )
        task = asyncio.create_task(reflector.run())
        try:
            yield Followed(api=api, reflector=reflector, mirror=mirror, stream=stream, pokes=pokes)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def put(api: FakeApiServer, name: str, epoch: int = 1) -> None:
    api.put(GPU_NODE, {"metadata": {"name": name}, "spec": {"epoch": epoch}})


async def test_a_list_in_pages_and_then_events(api: FakeApiServer) -> None:
    for number in range(8):
        put(api, f"n{number}")
    async with following(api) as f:
        await f.watching()
        await f.agrees()
        lists = [seen for seen in api.requests if seen.ask.verb == "list"]
        assert [seen.query["limit"] for seen in lists] == ["3", "3", "3"]
        put(api, "n3", epoch=2)
        put(api, "late")
        api.remove(GPU_NODE, "n0")
        await f.agrees()
        assert f.reflector.objects == 8
        assert f.pokes == ["gpunodes"] * 4
        assert f.mirror.calls == ["replace", "upsert", "upsert", "remove"]
        assert f.reflector.relists_total == 0


async def test_no_ghosts_after_a_forced_410(api: FakeApiServer) -> None:
    for number in range(4):
        put(api, f"n{number}")
    async with following(api) as f:
        await f.watching()
        # All in one step of the loop: no one sees the removal itself.
        api.expire_watches()
        api.remove(GPU_NODE, "n1")
        api.compact()
        await f.agrees()
        assert "n1" not in f.mirror.held
        assert f.reflector.relists_total >= 1
        assert f.reflector.objects == 3


async def test_a_410_over_http_relists_too(api: FakeApiServer) -> None:
    put(api, "n0")
    api.faults.gone_over_http = True
    api.faults.gone_storm = 1
    async with following(api) as f:
        await f.until(lambda: f.reflector.relists_total == 1)
        await f.watching()
        await f.agrees()


async def test_a_storm_of_410_is_answered_with_pauses(api: FakeApiServer) -> None:
    put(api, "n0")
    api.faults.gone_storm = 20
    async with following(api) as f:
        await f.until(lambda: api.faults.gone_storm == 0)
        await f.watching()
        assert f.reflector.errors_total == 19  # the first one is no storm yet
        put(api, "n1")
        await f.agrees()


async def test_a_frozen_watch_is_left_and_nothing_is_lost(api: FakeApiServer) -> None:
    async with following(api, STALLING, grace_s=-0.8) as f:
        await f.watching()
        api.faults.freeze_watches()
        put(api, "n0")
        await f.until(lambda: f.reflector.stalls_total >= 1)
        assert f.mirror.held == {}
        api.faults.thaw_watches()
        await f.agrees()
        assert f.reflector.relists_total == 0


async def test_silence_ages_the_stream_and_bookmarks_refresh_it(api: FakeApiServer) -> None:
    api.bookmarks_every(0.02)
    async with following(api) as f:
        await f.watching()
        before = f.reflector.last_event_at
        await f.until(lambda: f.reflector.last_event_at > before)
        assert f.reflector.last_event_age_s() < 5
        assert f.pokes == []


async def test_a_bookmark_moves_the_place_to_go_on_from(api: FakeApiServer) -> None:
    api.bookmarks_every(0.02)
    async with following(api) as f:
        await f.watching()
        # Changes of another kind: only a bookmark can tell this stream of them.
        api.put(POD, {"metadata": {"name": "p", "namespace": "d"}})
        await f.until(lambda: f.reflector.resource_version == str(api.version))
        api.compact()
        api.cut_watches()
        put(api, "n0")
        await f.agrees()
        assert f.reflector.relists_total == 0


async def test_half_a_line_loses_nothing(api: FakeApiServer) -> None:
    async with following(api) as f:
        await f.watching()
        api.faults.half_lines = 3
        put(api, "n0")
        put(api, "n1")
        await f.agrees()
        assert f.reflector.relists_total == 0


async def test_a_bad_line_never_stops_the_stream(api: FakeApiServer) -> None:
    async with following(api) as f:
        await f.watching()
        api.faults.bad_lines = 1
        put(api, "n0")
        await f.agrees()
        await f.watching()
        put(api, "n1")
        await f.agrees()
        assert f.reflector.relists_total == 1


@pytest.mark.parametrize("status", [403, 404, 429, 500, 503, 0])
async def test_a_refused_list_is_tried_again(api: FakeApiServer, status: int) -> None:
    put(api, "n0")
    api.fail(status, times=3, verb="list")
    async with following(api) as f:
        await f.agrees()
        # aiohttp opens a cut connection again by itself.
        assert f.reflector.errors_total == 3 if status else f.reflector.errors_total >= 1


async def test_an_error_line_is_answered_with_a_list(api: FakeApiServer) -> None:
    put(api, "n0")
    api.faults.watch_errors = [500, 429]
    async with following(api) as f:
        await f.until(lambda: f.reflector.relists_total == 2)
        put(api, "n1")
        await f.agrees()


async def test_a_restart_without_watch_cache_is_survived(api: FakeApiServer) -> None:
    put(api, "n0")
    async with following(api) as f:
        await f.watching()
        await api.stop()
        await f.until(lambda: f.reflector.errors_total >= 2)
        put(api, "n1")
        api.remove(GPU_NODE, "n0")
        api.compact()
        await api.start()
        await f.agrees()


async def test_a_continued_list_that_expires_starts_again(api: FakeApiServer) -> None:
    for number in range(5):
        put(api, f"n{number}")
    api.faults.list_gone = 2
    async with following(api) as f:
        await f.agrees()


async def test_a_resync_of_a_right_picture_finds_nothing(api: FakeApiServer) -> None:
    put(api, "n0")
    async with following(api, replace(TIMES, resync_s=0.0)) as f:
        await f.watching()
        put(api, "n1")
        await f.agrees()
        api.cut_watches()
        put(api, "n2")  # not yet seen when the list of the known version comes
        await f.until(lambda: f.mirror.calls.count("replace") >= 2)
        await f.agrees()
        assert f.reflector.resync_drift_total == 0
        exact = [seen for seen in api.requests if "resourceVersionMatch" in seen.query]
        assert exact


async def test_a_resync_finds_and_mends_what_a_bug_lost(api: FakeApiServer) -> None:
    async with following(api, replace(TIMES, resync_s=0.0)) as f:
        await f.watching()
        f.mirror.blind_to = {"n0"}
        put(api, "n0")
        await f.until(lambda: "upsert" in f.mirror.calls)
        assert f.mirror.held == {}
        api.cut_watches()
        await f.agrees()
        assert f.reflector.resync_drift_total == 1
        assert f.pokes == ["gpunodes"]


async def test_a_resync_of_a_forgotten_version_lists_again(api: FakeApiServer) -> None:
    put(api, "n0")
    async with following(api, replace(TIMES, resync_s=0.0)) as f:
        await f.watching()
        api.put(POD, {"metadata": {"name": "p", "namespace": "d"}})
        api.compact()
        api.cut_watches()
        await f.until(lambda: f.reflector.relists_total >= 1)
        await f.agrees()
        assert f.reflector.resync_drift_total == 0


async def test_an_object_that_leaves_the_selection_is_removed(api: FakeApiServer) -> None:
    stream = Stream(name="mine", kind=GPU_NODE, selector=Selector(labels="mine=yes"))
    mine = {"metadata": {"name": "n0", "labels": {"mine": "yes"}}, "spec": {"epoch": 1}}
    api.put(GPU_NODE, mine)
    put(api, "n1")
    async with following(api, stream=stream) as f:
        await f.watching()
        await f.agrees()
        api.edit(GPU_NODE, "n0", {"metadata": {"labels": {"mine": "no"}}})
        await f.until(lambda: f.mirror.held == {})
        assert f.reflector.objects == 0


async def test_a_broken_sink_does_not_end_the_stream(api: FakeApiServer) -> None:
    async with following(api) as f:
        await f.watching()
        f.mirror.fails = 2
        put(api, "n0")
        await f.agrees()
        assert f.reflector.errors_total == 2


@pytest.mark.parametrize("seed", range(6))
async def test_random_trouble_ends_in_agreement(api: FakeApiServer, seed: int) -> None:
    rng = random.Random(seed)
    trouble: list[Callable[[], object]] = [
        api.expire_watches,
        api.cut_watches,
        api.compact,
        lambda: api.fail(rng.choice([0, 410, 429, 500, 503]), times=2, verb="list"),
        lambda: api.fail(rng.choice([0, 403, 410, 500]), times=1, verb="watch"),
        lambda: setattr(api.faults, "half_lines", 1),
        lambda: setattr(api.faults, "bad_lines", 1),
        lambda: api.faults.watch_errors.append(rng.choice([410, 500])),
    ]
    async with following(api) as f:
        for _ in range(150):
            name = f"n{rng.randrange(12)}"
            if rng.random() < 0.3 and api.get(GPU_NODE, name):
                api.remove(GPU_NODE, name)
            else:
                put(api, name, epoch=rng.randrange(100))
            if rng.random() < 0.2:
                rng.choice(trouble)()
            if rng.random() < 0.5:
                await asyncio.sleep(rng.random() * 0.004)
        await f.agrees()
        assert f.reflector.objects == len(f.mirror.held)
        assert f.reflector.resync_drift_total == 0
