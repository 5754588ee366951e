# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Wild answers of metadata endpoints, pages of pods and lists of kubelet."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from fakes import wild
from ullage.api.interruptions import Interruption, InterruptionKind
from ullage_node.model.devices import ContainerKey
from ullage_node.notices.azure import Azure
from ullage_node.notices.ec2 import EC2
from ullage_node.notices.endpoint import AnswerUnreadable, EndpointAway, MetadataAnswer
from ullage_node.notices.gce import GCE
from ullage_node.notices.watch import NoticeWatch
from ullage_node.settings import NoticeProvider, NoticeSettings
from ullage_node.telemetry.histograms import HistogramUnusable, quantile, read_histogram
from ullage_node.telemetry.scrape import LINES_MAX, ScrapeFailed, ScrapeTarget, fetch_lines

pytestmark = pytest.mark.slow

METRIC = "ullage_request_seconds"
NAMES = ("le", "a", 'b="', "", "le ")
PARTS = ("{", "}", '"', "\\", ",", "=", " ", "\t", "#", "1", "1e400", "NaN", "²", "le=", '"0.1"')


class Says:
    """An endpoint whose answers went wild."""

    def __init__(self, dice: random.Random, good: dict[str, Any]) -> None:
        self.dice = dice
        self.good = good

    async def get(
        self, path: str, headers: object = None, *, wait_s: float = 0.0
    ) -> MetadataAnswer:
        return self._answer(path.partition("?")[0])

    async def put(self, path: str, headers: object) -> MetadataAnswer:
        return self._answer(path)

    def _answer(self, path: str) -> MetadataAnswer:
        good = self.good.get(path, "text")
        made = wild.wild(self.dice, good, changes=2) if self.dice.random() < 0.8 else good
        try:
            text = made if isinstance(made, str) else json.dumps(made)
        except RecursionError:
            text = "[" * 60_000
        status = self.dice.choice((200, 200, 200, 200, 404, 401, 503, 302))
        tag = self.dice.choice(wild.WORDS)[:1000]
        return MetadataAnswer(status=status, text=text[: 64 << 10], headers={"ETag": tag})


GOOD = {
    "/latest/api/token": "token",
    "/latest/meta-data/spot/instance-action": {
        "action": "terminate",
        "time": "2026-01-01T00:00:00Z",
    },
    "/latest/meta-data/events/recommendations/rebalance": {"noticeTime": "2026-01-01T00:00:00Z"},
    "/metadata/scheduledevents": {
        "DocumentIncarnation": 1,
        "Events": [
            {
                "EventId": "e",
                "EventType": "Preempt",
                "Resources": ["text"],
                "NotBefore": "Mon, 19 Sep 2016 18:29:47 GMT",
            }
        ],
    },
    "/computeMetadata/v1/instance/preempted": "TRUE",
}


@pytest.mark.parametrize("make", [EC2, GCE, Azure])
async def test_a_wild_notice_is_refused_or_can_be_told(make: type[EC2 | GCE | Azure]) -> None:
    known = Interruption(kind=InterruptionKind.TERMINATE, deadline_s=1.7e9, source=make.name)
    for seed in wild.seeds(300):
        dice = random.Random(seed)
        source = make()
        for _ in range(3):
            try:
                found = await source.ask(Says(dice, GOOD), dice.choice((None, known)))  # type: ignore[arg-type]
            except (EndpointAway, AnswerUnreadable) as error:
                said = str(error)
            except Exception as error:
                raise AssertionError(f"seed {seed}") from error
            else:
                said = json.dumps(found.to_wire()) if found else ""
            assert len(said) < 1000, seed


@pytest.mark.parametrize(
    "written",
    [
        "0001-01-01T00:00:00Z",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59Z",
        "9999-12-31T23:59:59-23:59",
    ],
)
async def test_a_notice_at_the_end_of_time_is_told(written: str) -> None:
    class Fixed(Says):
        def _answer(self, path: str) -> MetadataAnswer:
            good = {"action": "terminate", "time": written}
            text = "token" if path.endswith("token") else json.dumps(good)
            return MetadataAnswer(status=200, text=text, headers={})

    found = await EC2().ask(Fixed(random.Random(0), GOOD), None)  # type: ignore[arg-type]
    assert found is not None
    assert Interruption.from_wire(found.to_wire()) == found


async def test_a_fault_over_one_answer_is_a_failure_and_not_the_end() -> None:
    class Broken:
        name, base = "EC2", "http://127.0.0.1"

        async def ask(self, endpoint: object, known: object) -> Interruption | None:
            raise RecursionError("too deep")

    watch = NoticeWatch(NoticeSettings(provider=NoticeProvider.EC2), source=Broken())
    await watch.look(None)  # type: ignore[arg-type]
    assert watch.failures == {"unreadable": 1}
    assert watch.current is None


# -- pages ---------------------------------------------------------------------------------------


def page(dice: random.Random) -> list[str]:
    """A good page: counts that rise, in several label sets."""
    lines = [f"# TYPE {METRIC} histogram"]
    for number in range(dice.randint(1, 3)):
        total = 0
        for bound in ("0.1", "0.5", "2.5", "+Inf"):
            total += dice.randrange(50)
            tag = f'path="/{number}",' if dice.random() < 0.7 else ""
            value = dice.choice((f"{total}", f"{total}.0", f"{total} 1700000000000"))
            lines.append(f'{METRIC}_bucket{{{tag}x="a,b}}\\"c",le="{bound}"}} {value}')
        lines.append(f'{METRIC}_count{{x="1"}} {total}')
        lines.append(f"{METRIC}_sum {total * 0.3}")
    return lines


def test_good_pages_are_read_as_the_reference_reads_them() -> None:
    for seed in wild.seeds(200):
        lines = page(random.Random(seed))
        found = read_histogram(lines, METRIC)
        buckets: dict[float, float] = {}
        text = "\n".join(one.removesuffix(" 1700000000000") for one in lines) + "\n"
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name.endswith("_bucket"):
                    bound = float(sample.labels["le"])
                    buckets[bound] = buckets.get(bound, 0.0) + sample.value
        assert dict(zip(found.bounds, found.cumulative, strict=True)) == buckets, seed


def test_wild_pages_are_refused_or_make_sense() -> None:
    for seed in wild.seeds(400):
        dice = random.Random(seed)
        lines = page(dice)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(lines))
            cut = dice.randrange(len(lines[at]) + 1)
            noise = "".join(dice.choice(PARTS) for _ in range(dice.randrange(30)))
            lines[at] = lines[at][:cut] + noise + dice.choice(("", lines[at][cut:]))
        try:
            found = read_histogram(lines, METRIC)
        except HistogramUnusable as error:
            text = str(error)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        else:
            value = quantile(found, 0.99)
            text = ""
            assert value is None or 0 <= value.micros < 2**63, seed
            assert math.isfinite(found.sum_seconds), seed
        assert len(text) < 500, seed


@pytest.mark.parametrize(
    "body",
    [
        b"\n" * (LINES_MAX + 1),
        b"".join(f'{METRIC}_bucket{{a="{"x" * 900}"}} 1\n'.encode() for _ in range(1000)),
    ],
    ids=["lines", "bytes"],
)
async def test_a_page_is_read_as_far_as_that_is_cheap(body: bytes) -> None:
    async def serve(request: web.Request) -> web.Response:
        return web.Response(body=body)

    application = web.Application()
    application.router.add_get("/metrics", serve)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/metrics"
    key = ContainerKey(pod_uid="u", container="main")
    with pytest.raises(ScrapeFailed, match="more than"):
        await fetch_lines(ScrapeTarget(key=key, url=url))
    await runner.cleanup()
