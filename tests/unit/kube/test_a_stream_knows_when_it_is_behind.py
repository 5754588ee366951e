# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A stream is synced while it holds what the server holds, and says why where it does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence

import pytest
from structlog.testing import capture_logs

from fakes.virtual_time import LoopClock, run_virtual
from ullage.cluster.values.streams import GPU_NODES, POD_GROUPS, Stream
from ullage.kube.answers import WatchStalled
from ullage.kube.reflector import Reflector
from ullage.kube.times import KIND_ABSENT_S, STREAM_FROZEN_S, STREAM_UNSYNCED_S
from ullage.ports import (
    JsonObject,
    Kind,
    NotFound,
    Page,
    Selector,
    Throttled,
    Unavailable,
    WatchEvent,
)

WATCH_END_S = 55.0
"""Time limit of the client on a watch that its server does not end."""
BACK_S = 5.0
"""A stream is synced again this long after its server is back, at most."""


class Server:
    """Holds no object; every fault is a switch. Also the sink of the stream."""

    def __init__(self) -> None:
        self.away = False
        self.frozen = False
        self.hung = False
        self.throttled_s = 0.0
        self.sink_fails = False
        self.serves = True
        self.lists = 0
        self.watches: list[int] = []
        """Seconds that each watch was asked to last."""
        self._gone = asyncio.Event()

    def leave(self) -> None:
        """Refuse connections and cut the open ones."""
        self.away = True
        self._gone.set()

    def return_(self) -> None:
        self.away = False
        self._gone = asyncio.Event()

    def _answer(self) -> None:
        if self.away:
            raise Unavailable(0, "connection refused")
        if self.throttled_s:
            raise Throttled(429, "later", "", self.throttled_s)

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500, resource_version: str = ""
    ) -> AsyncIterator[Page]:
        if self.hung:
            await asyncio.Event().wait()
        self._answer()
        self.lists += 1
        if not self.serves:
            raise NotFound(404, "the server could not find the requested resource")
        yield Page(items=[], resource_version="1")

    async def watch(
        self,
        kind: Kind,
        selector: Selector,
        *,
        resource_version: str,
        timeout_s: int = 45,
        on_open: Callable[[], None] | None = None,
    ) -> AsyncGenerator[WatchEvent]:
        self._answer()
        self.watches.append(timeout_s)
        if on_open is not None:
            on_open()
        if self.hung:
            await asyncio.Event().wait()
        if self.frozen:
            await asyncio.sleep(WATCH_END_S)
            raise WatchStalled(0, "outlived its time")
        try:
            async with asyncio.timeout(timeout_s):
                await self._gone.wait()
        except TimeoutError:
            return
        raise Unavailable(0, "connection reset")
        yield  # no object ever changes

    # The sink.

    def replace(self, stream: Stream, items: Sequence[JsonObject], now: float) -> bool:
        if self.sink_fails:
            raise TypeError("unhashable type: 'dict'")
        return False

    def upsert(self, stream: Stream, item: JsonObject, now: float) -> bool:
        return False

    def remove(self, stream: Stream, item: JsonObject, now: float) -> bool:
        return False


Story = Callable[[Server, Reflector], Awaitable[None]]


def told(story: Story) -> None:
    """Play a story on a reflector that begins to run."""

    async def main() -> None:
        server = Server()
        reflector = Reflector(
            GPU_NODES,
            source=server,
            sink=server,
            clock=LoopClock(),
            poke=lambda _: None,
            seed=1,
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(1.0)
        try:
            await story(server, reflector)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    with capture_logs():
        run_virtual(main())


async def synced_throughout(reflector: Reflector, seconds: float) -> bool:
    for _ in range(int(seconds * 4)):
        await asyncio.sleep(0.25)
        if not reflector.synced:
            return False
    return True


def test_a_server_that_is_away_for_long_makes_it_unsynced_until_it_is_back() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        assert reflector.synced
        server.leave()
        assert await synced_throughout(reflector, STREAM_UNSYNCED_S - 1.0)
        for _ in range(100):
            await asyncio.sleep(6.0)
            assert not reflector.synced
            assert "Unavailable: 0: connection refused" in reflector.problem()
            assert reflector.stuck() == "", "a restart would mend nothing"
        server.return_()
        await asyncio.sleep(BACK_S)
        assert await synced_throughout(reflector, 300.0)

    told(story)


def test_a_server_that_is_away_at_the_start_is_waited_for() -> None:
    async def main() -> None:
        server = Server()
        server.leave()
        reflector = Reflector(
            GPU_NODES, source=server, sink=server, clock=LoopClock(), poke=lambda _: None, seed=1
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(600.0)
        assert reflector.problem() == "not listed yet: Unavailable: 0: connection refused"
        assert reflector.stuck() == ""
        server.return_()
        await asyncio.sleep(BACK_S)
        assert reflector.synced
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with capture_logs():
        run_virtual(main())


@pytest.mark.parametrize(
    ("stream", "synced"), [(POD_GROUPS, True), (GPU_NODES, False)], ids=lambda one: str(one)
)
def test_a_kind_that_need_not_be_served_holds_up_nothing(stream: Stream, synced: bool) -> None:
    async def main() -> None:
        server = Server()
        server.serves = False
        reflector = Reflector(
            stream, source=server, sink=server, clock=LoopClock(), poke=lambda _: None, seed=1
        )
        task = asyncio.create_task(reflector.run())
        await asyncio.sleep(1.0)
        assert reflector.synced is synced
        assert await synced_throughout(reflector, 4 * KIND_ABSENT_S) is synced
        assert server.lists <= 6, "it is seldom asked for"
        assert not server.watches
        server.serves = True
        await asyncio.sleep(KIND_ABSENT_S)
        assert reflector.synced
        assert server.watches, "a kind that is served later is watched from then on"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    with capture_logs():
        run_virtual(main())


def test_a_short_outage_leaves_a_silent_stream_synced_without_a_list() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        server.leave()
        await asyncio.sleep(30.0)
        server.return_()
        assert await synced_throughout(reflector, 200.0)
        assert server.lists == 1

    told(story)


def test_ten_restarts_in_five_minutes_never_make_the_pauses_grow() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        for _ in range(10):
            server.leave()
            await asyncio.sleep(15.0)
            server.return_()
            await asyncio.sleep(BACK_S)
            assert reflector.streak.seconds(asyncio.get_running_loop().time()) == 0.0
            await asyncio.sleep(15.0 - BACK_S)
        assert reflector.synced

    told(story)


def test_watches_are_short_at_first_and_after_a_failure() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        await asyncio.sleep(200.0)
        assert server.watches == [5, 10, 20, 40, 45, 45, 45]
        server.leave()
        await asyncio.sleep(20.0)
        server.return_()
        await asyncio.sleep(BACK_S + 5.0 + 10.0)
        assert server.watches[7:] in ([5, 10], [5, 10, 20]), "a silent one is soon another one"

    told(story)


def test_a_frozen_watch_is_proven_by_lists_and_never_stuck() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        server.frozen = True
        await asyncio.sleep(45.0)  # the watch that is open ends by itself
        assert await synced_throughout(reflector, 10 * WATCH_END_S)
        assert server.lists >= 4
        assert reflector.stuck() == ""

    told(story)


def test_a_fault_of_our_own_that_stays_for_a_minute_is_stuck_until_it_ends() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        server.sink_fails = True
        server.leave()
        await asyncio.sleep(STREAM_UNSYNCED_S + 10.0)  # only a list passes through the sink
        server.return_()
        await asyncio.sleep(STREAM_UNSYNCED_S / 2)
        assert reflector.stuck() == "", "it was the server until just now"
        await asyncio.sleep(STREAM_UNSYNCED_S)
        assert "TypeError: unhashable type: 'dict'" in reflector.stuck()
        assert not reflector.synced
        server.sink_fails = False
        await asyncio.sleep(31.0)
        assert reflector.synced

    told(story)


def test_a_stream_that_neither_hears_nor_fails_is_stuck() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        server.hung = True
        server.leave()
        server.return_()
        await asyncio.sleep(STREAM_FROZEN_S + 5.0)
        assert reflector.stuck().startswith("neither hears nor fails for")
        assert not reflector.synced

    told(story)


def test_a_server_that_asks_for_years_of_patience_is_asked_within_a_minute() -> None:
    async def story(server: Server, reflector: Reflector) -> None:
        server.throttled_s = float("inf")
        await asyncio.sleep(100.0)
        assert reflector.errors_total > 0
        server.throttled_s = 0.0
        await asyncio.sleep(61.0)
        assert reflector.synced

    told(story)
