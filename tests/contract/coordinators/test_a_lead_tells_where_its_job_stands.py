# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The runtime's answer and the operator's reading of it are one contract, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import pytest

from fakes.toy_group import ToyJob
from ullage.cluster.records.tier import CoordinatorReport
from ullage.kube.coordinator_reader import CoordinatorReader, CoordinatorSilent
from ullage_coordinator.status import PATH, CoordinatorState, StatusServer, Tale

PROGRESS = CoordinatorState(
    stage=2, epoch=7, step=41, committed=40, copied=True, reliable=1, transient=3
)  # fmt: skip


@contextmanager
def answering(told: Callable[[], Mapping[str, object]]) -> Iterator[int]:
    status_server = StatusServer(("127.0.0.1", 0), told)
    try:
        yield status_server.address[1]
    finally:
        status_server.close()


def read(port: int) -> CoordinatorReport | None:
    async def ask() -> CoordinatorReport | None:
        return await CoordinatorReader(port=port).read("127.0.0.1")

    return asyncio.run(ask())


def test_the_operator_reads_what_the_lead_says() -> None:
    tale = Tale()
    tale.ask(lambda: PROGRESS)
    tale.note("Recovered", {"lostSteps": 2})
    tale.note("Recovered", {"lostSteps": 0})
    with answering(tale.answer) as port:
        found = read(port)
    assert found == CoordinatorReport(
        stage=2,
        epoch=7,
        step=41,
        committed=40,
        copied=True,
        reliable=1,
        transient=3,
        lost_steps=2,
    )


def test_before_the_first_maps_there_is_nothing_to_read() -> None:
    with answering(Tale().answer) as port:
        assert read(port) is None


def test_a_copy_that_is_not_whole_is_none() -> None:
    tale = Tale()
    tale.ask(lambda: CoordinatorState(**{**_fields(), "committed": None}))  # type: ignore[arg-type]
    with answering(tale.answer) as port:
        found = read(port)
    assert found is not None
    assert found.committed is None


def _fields() -> dict[str, object]:
    return {name: getattr(PROGRESS, name) for name in CoordinatorState.__slots__}


def test_a_job_that_runs_says_where_it_stands() -> None:
    with ToyJob(members=3) as job:
        job.member("r", until=60, reliable=True)
        job.member("a", until=60)
        job.member("b", until=60)
        job.finish()
        found = job._coordinator.progress()
    assert found is not None
    assert found.stage == 2
    assert found.step >= 58
    assert found.committed is not None


@pytest.mark.parametrize(
    "answer",
    [
        {"stage": 9},
        {"stage": 2, "step": -1},
        {"stage": 2, "epoch": "x"},
        {"stage": 1, "step": 2**60},
        {"stage": 2, "much": "x" * 20_000},
    ],
)
def test_what_no_lead_says_is_not_believed(answer: dict[str, object]) -> None:
    with answering(lambda: answer) as port, pytest.raises(CoordinatorSilent):
        read(port)


def test_nothing_but_the_status_is_told() -> None:
    with answering(Tale().answer) as port:
        base = f"http://127.0.0.1:{port}"
        with urllib.request.urlopen(f"{base}{PATH}", timeout=5) as answer:
            assert json.loads(answer.read())["lostSteps"] == 0
        with pytest.raises(urllib.error.HTTPError) as other:
            urllib.request.urlopen(f"{base}/", timeout=5)
        assert other.value.code == 404
        other.value.close()
        with pytest.raises(urllib.error.HTTPError) as written:
            urllib.request.urlopen(f"{base}{PATH}", data=b"{}", timeout=5)
        assert written.value.code == 501
        written.value.close()


def test_an_address_is_never_a_name() -> None:
    with pytest.raises(CoordinatorSilent, match="no address"):
        asyncio.run(CoordinatorReader().read("metadata.internal"))


def test_no_one_there_is_said_so() -> None:
    with pytest.raises(CoordinatorSilent):
        read(1)


class Wild:
    """A server that writes these bytes to every client, and then drips."""

    def __init__(self, said: bytes, drips: bool) -> None:
        self.said = said
        self.drips = drips
        self.tasks: set[asyncio.Task[object]] = set()

    async def answer(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            writer.write(self.said)
            await writer.drain()
            while self.drips:
                await asyncio.sleep(0.05)
                writer.write(b"0")
                await writer.drain()
        except OSError:
            pass  # the reader has had enough
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def end(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def _http(body: bytes, *headers: bytes, length: int | None = None) -> bytes:
    said = length if length is not None else len(body)
    lines = (b"HTTP/1.1 200 OK", b"Content-Length: %d" % said, *headers, b"", body)
    return b"\r\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "drips"),
    [
        (b"", False),
        (b"\x00" * 1_000_000, False),
        (b"HTTP/1.1 200 OK\r\n", True),
        (b"HTTP/1.1 200 OK\r\nX: ", True),
        (_http(b"{", length=16_000), True),
        (_http(b"", length=10**30), False),
        (_http(b"", length=-5), False),
        (_http(b"[" * 16_000), False),
        (_http(b'{"a":' * 3_000), False),
        (_http(b'{"stage": 1e999}'), False),
        (_http(b'{"stage": 2, "step": ' + b"9" * 5_000 + b"}"), False),
        (_http(b'{"stage": true}'), False),
        (_http(b'{"stage": 2, "committed": NaN}'), False),
        (_http(b'{"stage": [[[]]]}'), False),
        (_http(b"\xff\xfe"), False),
        (_http(gzip.compress(b" " * 10_000_000)[:16_000], b"Content-Encoding: gzip"), False),
        (b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", True),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100_000, False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000, True),
    ],
)
def test_a_wild_answer_is_silence_within_the_time_limit(said: bytes, drips: bool) -> None:
    async def ask() -> float:
        wild = Wild(said, drips)
        server = await asyncio.start_server(wild.answer, "127.0.0.1", 0)
        reader = CoordinatorReader(port=server.sockets[0].getsockname()[1], timeout_s=0.5)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            with pytest.raises(CoordinatorSilent) as told:
                await reader.read("127.0.0.1")
            assert len(str(told.value)) < 400
            return loop.time() - began
        finally:
            server.close()
            await wild.end()

    async def bounded() -> None:
        async with asyncio.timeout(30.0):
            await ask()

    asyncio.run(bounded())


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "::ffff:169.254.169.254", "0.0.0.0", "224.0.0.1", "2001:db8::1%\r\nX: y"],
)
def test_an_address_of_a_machine_is_never_asked(address: str) -> None:
    with pytest.raises(CoordinatorSilent, match="no address of a pod"):
        asyncio.run(CoordinatorReader().read(address))
