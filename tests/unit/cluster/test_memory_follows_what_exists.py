# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A tenant who edits a large template again and again costs the memory of one template."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest

from builders_raw import raw_job, raw_template
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.values.bounded import Memo, size_of
from ullage.cluster.values.streams import TRAINING_JOBS

EDITS = 20
"""Ten times what may be left: a template that stays for each edit is found by the third."""
TEMPLATE_BYTES = 256 * 1024
LEFT_BYTES = 2 * TEMPLATE_BYTES
"""The newest template, and room for what is kept of identities, hashes and shapes."""


def large_job(edit: int) -> dict[str, Any]:
    template = raw_template()
    filling = [{"name": f"V{n}", "value": f"{edit}-{'x' * 1000}"} for n in range(250)]
    template["spec"]["containers"][0]["env"] = filling
    return raw_job(
        template=template, meta={"generation": edit + 1, "resourceVersion": str(edit + 1)}
    )


@pytest.fixture
def held() -> Any:
    """Bytes that are held now, beyond those at the start."""
    warm = ClusterState(effect_of)
    for edit in range(3):
        warm.upsert(TRAINING_JOBS, large_job(edit), float(edit))
    del warm
    gc.collect()
    tracemalloc.start()
    first, _ = tracemalloc.get_traced_memory()

    def now() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - first

    yield now
    tracemalloc.stop()


@pytest.mark.slow
def test_edits_of_a_large_template_leave_one_and_deletion_none(held: Any) -> None:
    state = ClusterState(effect_of)
    for edit in range(EDITS):
        state.upsert(TRAINING_JOBS, large_job(edit), float(edit))
    assert TEMPLATE_BYTES < held() < LEFT_BYTES
    state.remove(TRAINING_JOBS, large_job(EDITS), float(EDITS))
    assert held() < TEMPLATE_BYTES // 2


def test_equal_templates_of_many_jobs_are_one(held: Any) -> None:
    state = ClusterState(effect_of)
    for number in range(50):
        job = large_job(0)
        job["metadata"] |= {"uid": f"uid-{number}", "name": f"job-{number}"}
        state.upsert(TRAINING_JOBS, job, 0.0)
    assert held() < 4 * TEMPLATE_BYTES


def test_what_is_shared_stays_within_its_bytes() -> None:
    share = Sharer(limit_bytes=100_000)
    for number in range(1000):
        share((f"{number}", "x" * 5000))
    assert share.held_bytes <= 100_000
    kept = share(("a", "b"))
    for number in range(1000):
        share(("other", str(number)))
        assert share(tuple("ab")) is kept


def test_a_value_too_large_to_keep_pushes_nothing_out() -> None:
    memo: Memo[str, str] = Memo(10_000)
    memo.put("small", "one")
    memo.put("large", "x" * 6000)
    assert memo.get("small") == "one"
    assert memo.get("large") is None
    assert size_of(("x" * 6000,)) > 6000


def test_a_status_event_does_not_read_the_template_again() -> None:
    state = ClusterState(effect_of)
    job = large_job(0)
    state.upsert(TRAINING_JOBS, job, 0.0)
    job["metadata"] |= {"resourceVersion": "2"}
    job["spec"]["template"] = Unread(job["spec"]["template"])
    job["status"] = {"phase": "Running"}
    state.upsert(TRAINING_JOBS, job, 1.0)
    (held,) = state.freeze(2.0).workloads.values()
    assert (held.invalid, held.status.phase) == ("", "Running")
    job["metadata"] |= {"generation": 2}
    state.upsert(TRAINING_JOBS, job, 3.0)
    (held,) = state.freeze(4.0).workloads.values()
    assert "read again" in held.invalid


class Unread(dict[str, Any]):
    """A template that fails when it is looked into."""

    def items(self) -> Any:
        raise AssertionError("read again")

    __iter__ = items
    __getitem__ = items
