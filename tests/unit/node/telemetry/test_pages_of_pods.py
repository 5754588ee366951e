# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress

import pytest
from aiohttp import web

from ullage_node.model.devices import ContainerKey
from ullage_node.slices.desired import read_pod
from ullage_node.telemetry import scrape
from ullage_node.telemetry.scrape import (
    CHUNKS_MAX,
    LASTING_READS,
    LINES_MAX,
    PAGE_BYTES_MAX,
    ScrapeFailed,
    Scraper,
    ScrapeTarget,
    page_parts,
)
from ullage_node.telemetry.windows import HistogramPage
from ullage_run.requests import RequestHistogram

KEY = ContainerKey(pod_uid="uid-1", container="main")
OTHER = ContainerKey(pod_uid="uid-2", container="main")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page on a busy machine may take longer than an agent waits for one on a node."""
    monkeypatch.setattr(scrape, "PAGE_READ_S", 60.0)


class Pod:
    """A pod's server on a free port of this machine."""

    def __init__(self) -> None:
        self.histogram = RequestHistogram()
        self.status = 200
        self.reads = 0
        self.url = ""

    async def metrics(self, request: web.Request) -> web.Response:
        self.reads += 1
        padding = "".join(f"padding_{n} {n}\n" for n in range(5000))
        return web.Response(text=padding + self.histogram.metrics_text(), status=self.status)

    async def slow(self, request: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError("no one waits that long")

    async def huge(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for _ in range(2 * PAGE_BYTES_MAX // (1 << 20)):
            await answer.write(b"some_metric 1\n" * (1 << 16))
        return answer

    async def empty_lines(self, request: web.Request) -> web.Response:
        return web.Response(text="\n" * int(request.query["count"]))

    async def elsewhere(self, request: web.Request) -> web.Response:
        raise web.HTTPFound("/metrics")


@pytest.fixture
async def pod() -> AsyncIterator[Pod]:
    pod = Pod()
    application = web.Application()
    for path in ("metrics", "slow", "huge", "empty_lines", "elsewhere"):
        application.router.add_get(f"/{path}", getattr(pod, path))
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    pod.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield pod
    await runner.cleanup()


async def flooded(part: bytes) -> str:
    """Why a page of these bytes, again and again, is not read."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        with suppress(OSError):
            while True:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
        left.set()

    left = asyncio.Event()
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ScrapeFailed) as told:
            await scrape.fetch_lines(ScrapeTarget(key=KEY, url=f"http://127.0.0.1:{port}/metrics"))
        async with asyncio.timeout(30.0):
            await left.wait()
    return str(told.value)


class Taken:
    """A scraper and what it handed on."""

    def __init__(self, *targets: ScrapeTarget) -> None:
        self.targets = list(targets)
        self.pages: list[tuple[ContainerKey, HistogramPage]] = []
        self.told: list[tuple[ContainerKey, str]] = []
        self.scraper = Scraper(
            lambda: self.targets,
            lambda key, page: self.pages.append((key, page)),
            lambda key, why: self.told.append((key, why)),
        )


async def test_a_page_is_read_and_handed_on(pod: Pod) -> None:
    taken = Taken(ScrapeTarget(key=KEY, url=f"{pod.url}/metrics"))
    for seconds in (0.01, 0.2):
        pod.histogram.observe(seconds)
    await taken.scraper.run_once(1.0)
    ((key, page),) = taken.pages
    assert (key, page.histogram.count) == (KEY, 2)


async def test_a_page_is_read_when_due_or_in_a_hurry(pod: Pod) -> None:
    taken = Taken(ScrapeTarget(key=KEY, url=f"{pod.url}/metrics", period_s=5.0))
    for now in (10.0, 11.0, 14.9, 15.0):
        await taken.scraper.run_once(now)
    assert pod.reads == 2
    taken.scraper.hurry(KEY)
    await taken.scraper.run_once(15.25)
    assert pod.reads == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("nothing", r"answers 404, not 200"),
        ("elsewhere", r"answers 302, not 200"),
        ("huge", r"more than 4 MiB"),
        ("slow", r"did not answer within 1 s"),
    ],
)
async def test_a_page_that_cannot_be_read_is_one_sentence(
    pod: Pod, path: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path == "slow":
        monkeypatch.setattr(scrape, "PAGE_READ_S", 1.0)
    with pytest.raises(ScrapeFailed, match=why):
        await scrape.fetch_lines(ScrapeTarget(key=KEY, url=f"{pod.url}/{path}"))


async def test_lines_are_counted_however_short_they_are(pod: Pod) -> None:
    def target(count: int) -> ScrapeTarget:
        return ScrapeTarget(key=KEY, url=f"{pod.url}/empty_lines?count={count}")

    assert await scrape.fetch_lines(target(LINES_MAX)) == []
    with pytest.raises(ScrapeFailed, match=f"or {LINES_MAX} lines"):
        await scrape.fetch_lines(target(LINES_MAX + 1))


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/metrics", "http://[::bad/metrics"])
async def test_an_address_that_leads_nowhere(url: str) -> None:
    with pytest.raises(ScrapeFailed, match="cannot be read"):
        await scrape.fetch_lines(ScrapeTarget(key=KEY, url=url))


@pytest.mark.parametrize(
    ("part", "why"),
    [
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1_000, "answers 103, not 200"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000, "cannot be read (LimitOverrunError)"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "cannot be read (MalformedPage)"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "cannot be read (MalformedPage)"),
        (b"what?\r\n\r\n", "cannot be read (MalformedPage)"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"some_metric 1\n" * 10_000, "more than 4 MiB"),
    ],
)
async def test_a_page_without_end_is_left_at_once(part: bytes, why: str) -> None:
    assert why in await flooded(part)


async def test_a_page_of_countless_chunks_is_left() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert "(MalformedPage)" in await flooded(head + b"1\r\nx\r\n" * (CHUNKS_MAX + 1))


@pytest.mark.parametrize("size", [1, 7, 1000, 200_000])
@pytest.mark.parametrize("chunked", [False, True])
async def test_a_page_is_the_same_however_it_is_cut(size: int, chunked: bool) -> None:
    text = b"".join(b'ullage_request_seconds_bucket{le="%d"} 1\n' % n for n in range(200))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n")
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n" if chunked else b"\r\n")
        for at in range(0, len(text), size):
            part = text[at : at + size]
            writer.write(b"%x;a=b\r\n%b\r\n" % (len(part), part) if chunked else part)
            await writer.drain()
        writer.write(b"0\r\n\r\n" if chunked else b"")
        await writer.drain()
        writer.close()

    if chunked and size == 1:
        text = text[: CHUNKS_MAX // 2]
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/metrics"
        found = b""
        async with aclosing(page_parts(url, "text/plain")) as parts:
            async for part in parts:
                found += part
    assert found == text


async def test_a_failure_is_told_once_it_lasts_and_once_it_is_over(pod: Pod) -> None:
    pod.status = 500
    taken = Taken(ScrapeTarget(key=KEY, url=f"{pod.url}/metrics"), ScrapeTarget(key=OTHER, url=""))
    for second in range(0, 5 * (LASTING_READS - 1), 5):
        await taken.scraper.run_once(float(second))
    assert taken.told == []
    for second in range(5 * (LASTING_READS - 1), 50, 5):
        await taken.scraper.run_once(float(second))
        assert len(taken.told) == 2
    told = dict(taken.told)
    assert told[KEY].endswith("answers 500, not 200")
    assert "name a container port metrics or http" in told[OTHER]
    assert set(taken.scraper.problems) == {KEY, OTHER}
    pod.status = 200
    await taken.scraper.run_once(50.0)
    assert taken.told[2:] == [(KEY, "")]
    assert set(taken.scraper.problems) == {OTHER}


async def test_whoever_is_no_target_any_more_is_forgotten() -> None:
    taken = Taken(ScrapeTarget(key=KEY, url=""))
    for second in range(0, 20, 5):
        await taken.scraper.run_once(float(second))
    taken.targets.clear()
    await taken.scraper.run_once(25.0)
    assert not taken.scraper.problems


def a_pod(**spec: object) -> dict[str, object]:
    metadata = {"uid": "u", "name": "n", "namespace": "d", **spec.pop("metadata", {})}  # type: ignore[dict-item]
    return {
        "metadata": metadata,
        "spec": {"containers": []},
        "status": {"podIP": "10.1.2.3"},
        **spec,
    }


def ports(*named: tuple[str, object]) -> dict[str, object]:
    made = [{"name": name, "containerPort": port} for name, port in named]
    return {"containers": [{"name": "sidecar"}, {"name": "main", "ports": made}]}


@pytest.mark.parametrize(
    ("raw", "url"),
    [
        (a_pod(spec=ports(("http", 80), ("metrics", 9090))), "http://10.1.2.3:9090/metrics"),
        (a_pod(spec=ports(("grpc", 1), ("http", 80))), "http://10.1.2.3:80/metrics"),
        (a_pod(spec=ports(("grpc", 1))), ""),
        (a_pod(spec=ports(("http", 80)), status={}), ""),
        (
            a_pod(spec=ports(("http", 80)), status={"podIP": "fd00::7"}),
            "http://[fd00::7]:80/metrics",
        ),
        (
            a_pod(
                spec=ports(("http", 80)),
                metadata={
                    "annotations": {"prometheus.io/port": "8002", "prometheus.io/path": "/m"}
                },
            ),
            "http://10.1.2.3:8002/m",
        ),
    ],
)
def test_where_a_pod_serves_its_metrics(raw: dict[str, object], url: str) -> None:
    assert read_pod(raw).endpoint.url == url


@pytest.mark.parametrize("port", ["0", "65536", "http", "-1", "", "8_0", "٣", 80])
def test_an_annotation_that_is_no_port_counts_as_not_said(port: object) -> None:
    raw = a_pod(
        spec=ports(("http", 80)),
        metadata={"annotations": {"prometheus.io/port": port, "prometheus.io/path": "m #x"}},
    )
    assert read_pod(raw).endpoint.url == "http://10.1.2.3:80/metrics"


@pytest.mark.parametrize("junk", [None, [], [{"ports": 3}], [{"ports": [3]}]])
def test_junk_in_a_pod_hides_neither_the_pod_nor_its_images(junk: object) -> None:
    status = {
        "podIP": "10.1.2.3",
        "containerStatuses": [
            {"name": "main", "imageID": "example/serve@sha256:0a1b"},
            {"name": "side", "imageID": "sha256:ffee"},
            {"name": "new", "imageID": ""},
            {"name": 3},
        ],
    }
    pod = read_pod(a_pod(spec={"containers": junk}, status=status))
    assert pod.endpoint.url == ""
    assert pod.images == (("main", "sha256:0a1b"), ("side", "sha256:ffee"))
