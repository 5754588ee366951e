# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""kopf answers reviews of our kinds over TLS: with warnings, within bounds, without refusals."""

from __future__ import annotations

import asyncio
import io
import json
import random
import shutil
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from builders import a_snapshot
from builders_nodes import a_gpu_node
from builders_raw import raw_job, raw_policy, raw_pool, raw_service, raw_tuning_job
from certificates import certificate
from fakes.wild import wild
from ullage.cluster.records.snapshot import Snapshot
from ullage.handlers import admission as bounds
from ullage.handlers.admission import AdmissionAdvice, ReviewRate, refuse
from ullage.handlers.frame import KopfFrame
from ullage.handlers.mirror import Mirror
from ullage.ports import INFERENCE_DEPLOYMENT, SERVICE, TRAINING_JOB, Forbidden, Kind
from ullage.scheduling.status.advice import ADVISED

NAME = "ullage-admission.ullage-system.svc"
WAIT_S = 60
Json = dict[str, Any]
needs_openssl = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="openssl makes the certificates of this test"
)
TYPO = raw_job(accelerators=["typo"])
TEXT = "spec.accelerators: no node and no pool has accelerator typo; there are a100"


def review(kind: Kind, item: object, **request: object) -> bytes:
    """As the API server asks about an object that is about to be stored."""
    resource = {"group": kind.group, "version": kind.version, "resource": kind.plural}
    asked = {
        "uid": "705ab4f5",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "resource": resource,
        "requestResource": resource,
        "name": "train",
        "namespace": "default",
        "operation": "CREATE",
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters"]},
        "object": item,
        "oldObject": None,
        "dryRun": False,
        **request,
    }
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    return json.dumps(body).encode()


class Served:
    """A process with admission, and the API server that calls it."""

    def __init__(self, folder: Path) -> None:
        self.snapshot: Snapshot | None = a_snapshot(a_gpu_node(model="a100"))
        self.looks = 0
        self.admission = AdmissionAdvice(self._look, folder, 0)
        self.trusted = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        self.session = aiohttp.ClientSession()

    async def _look(self) -> Snapshot | None:
        assert threading.current_thread() is threading.main_thread()
        self.looks += 1
        return self.snapshot

    async def post(self, body: bytes) -> tuple[int, bytes]:
        async with self.session.post(
            f"https://127.0.0.1:{self.admission.port}/advise?timeout=2s",
            data=io.BytesIO(body), ssl=self.trusted, server_hostname=NAME,
        ) as response:  # fmt: skip
            return response.status, await response.read()

    async def warned(self, kind: Kind, item: object, **request: object) -> list[str]:
        status, body = await self.post(review(kind, item, **request))
        assert status == 200, body
        answer = json.loads(body)
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response = answer["response"]
        assert response.keys() <= {"uid", "allowed", "warnings"}
        assert (response["uid"], response["allowed"]) == ("705ab4f5", True)
        return list(response.get("warnings", []))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Served]:
    """As a replica serves, leading or not: kopf in a thread of its own."""
    served = Served(folder)
    frame = KopfFrame(Mirror(served.admission.kinds))
    task = asyncio.create_task(frame.run(refuse, served.admission.register))
    try:
        async with asyncio.timeout(WAIT_S):
            while not served.admission.port:
                assert not task.done(), task
                await asyncio.sleep(0.01)
        yield served
        assert not task.done(), task
    finally:
        await served.session.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        async with asyncio.timeout(WAIT_S):
            while frame.stuck:
                await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mounted")
    certificate(folder, NAME)
    return folder


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if each review came in a second of its own."""
    monkeypatch.setattr(bounds, "MOST_OF_NAMESPACE", 10**6)
    monkeypatch.setattr(bounds, "MOST_UNITS", 10**6)


@needs_openssl
async def test_reviews_of_each_kind_are_answered(mounted: Path, endless: None) -> None:
    good = (raw_job(), raw_service(), raw_tuning_job(), raw_pool(accelerator="a100"), raw_policy())
    async with serving(mounted) as served:
        assert await served.warned(TRAINING_JOB, TYPO) == [TEXT]
        for kind, item in zip(ADVISED, good, strict=True):
            assert await served.warned(kind, item) == []
            (text,) = await served.warned(kind, {**item, "spec": {"trials": 0, "roundSeconds": -1}})
            assert "until that is corrected this version changes nothing" in text
        assert served.looks == 1


@needs_openssl
async def test_what_is_about_something_else_goes_through(mounted: Path) -> None:
    async with serving(mounted) as served:
        assert await served.warned(SERVICE, TYPO) == []
        assert await served.warned(TRAINING_JOB, TYPO, subResource="status") == []
        assert await served.warned(TRAINING_JOB, None, operation="DELETE", oldObject=TYPO) == []
        assert not served.looks


@needs_openssl
async def test_a_replica_that_does_not_see_the_cluster_yet_says_nothing(mounted: Path) -> None:
    async with serving(mounted) as served:
        served.snapshot = None
        assert await served.warned(TRAINING_JOB, TYPO) == []


@needs_openssl
async def test_a_fault_of_a_handler_lets_the_object_through(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> tuple[str, ...]:
        raise RecursionError

    monkeypatch.setattr(bounds, "advise", fail)
    async with serving(mounted) as served:
        assert await served.warned(TRAINING_JOB, TYPO) == []
        monkeypatch.undo()
        assert await served.warned(TRAINING_JOB, TYPO) == [TEXT]


def deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


@needs_openssl
async def test_wild_objects_go_through(mounted: Path, endless: None) -> None:
    long = ["x" * 5000, "a\nb\x1b[31m" * 9, "é" * 300]
    async with serving(mounted) as served:
        for spec in (
            {"template": deep(900)}, {"gpu": deep(900)}, {"accelerators": long},
            {"trustDomain": long[1]}, {"tenant": long[2]}, {"replicas": 10**18},
            {"template": {"spec": {"containers": [{"name": "x"}] * 20_000}}},
        ):  # fmt: skip
            for text in await served.warned(TRAINING_JOB, raw_job(**spec)):
                assert text.isprintable()
                assert len(text) <= 250
        for seed in range(60):
            raw = wild(random.Random(seed), raw_service(accelerators=["typo"]))
            try:
                body = review(INFERENCE_DEPLOYMENT, raw)
            except (ValueError, RecursionError):
                continue
            status, _ = await served.post(body)
            assert status in (200, 400), seed  # 400 = no JSON of the API server's
        assert await served.warned(TRAINING_JOB, TYPO) == [TEXT]


@needs_openssl
async def test_what_is_no_review_is_refused(mounted: Path) -> None:
    async with serving(mounted) as served:
        nan = review(TRAINING_JOB, {"spec": {"x": float("nan")}})
        for body in (
            b"", b"{", b"\xff\xfe", b"null", nan, b"[" * 100_000,
            review(TRAINING_JOB, []), review(TRAINING_JOB, {"spec": 1}),
            review(TRAINING_JOB, TYPO, resource=[]), review(TRAINING_JOB, TYPO, uid=7),
        ):  # fmt: skip
            status, _ = await served.post(body)
            assert status == 400, body[:40]
        status, _ = await served.post(review(TRAINING_JOB, {"x": "a" * 1_500_000}))
        assert status == 413
        assert await served.warned(TRAINING_JOB, TYPO) == [TEXT]


@needs_openssl
async def test_masses_of_reviews_lose_advice_of_their_own(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "ReviewRate", Halted)
    async with serving(mounted) as served:
        mass = [await served.warned(TRAINING_JOB, TYPO, namespace="mass") for _ in range(100)]
        assert mass == [[TEXT]] * 16 + [[]] * 84
        assert await served.warned(TRAINING_JOB, TYPO, namespace="other") == [TEXT]


class Halted(ReviewRate):
    """Its second never ends."""

    def _begin(self, now: float) -> None:
        self.second = 0


def test_the_rate_is_of_namespaces_and_of_all() -> None:
    rate = ReviewRate()
    assert [rate.advises("a", 100, 1.0) for _ in range(17)] == [True] * 16 + [False]
    assert [rate.advises(name, 2**20, 1.5) for name in "bcde"] == [True] * 3 + [False]
    assert not rate.advises("f", 100, 1.9)
    assert len(rate.units) == 4
    assert rate.advises("a", 100, 2.0)


def test_large_bodies_are_decoded_at_a_rate_that_small_ones_do_not_have() -> None:
    rate = ReviewRate()
    assert [rate.decodes(2**20, 1.0) for _ in range(5)] == [True] * 4 + [False]
    assert all(rate.decodes(2**16, 1.0) for _ in range(1000))
    assert rate.decodes(2**20, 2.0)


async def test_admission_writes_nothing() -> None:
    with pytest.raises(Forbidden):
        await refuse(TRAINING_JOB, "default", "train", [])


def test_a_warning_is_a_line_that_the_api_server_passes_on() -> None:
    assert bounds._line("a\nb\x1b[31m") == "a?b?[31m"
    assert bounds._line("x" * 250) == "x" * 250
    assert bounds._line("x" * 251) == "x" * 249 + "…"
