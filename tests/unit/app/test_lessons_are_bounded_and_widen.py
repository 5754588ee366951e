# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A lesson keeps few rows; cells come for those who wait first, then for everyone."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from fakes.lesson_rig import GPU, START, Inline, Stage, profile, row
from ullage.api.schedulingpolicy import Knowledge
from ullage.app.fit_schedule import MOST_PROFILES, QUICK_CLASSES, FitSchedule, Pace
from ullage.app.fit_worker import MOST_CROWDS, FitTask, Key, kept_rows, merged, run_fit
from ullage.app.learner import Learner
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import DeviceProfileRecord, ProfileRecord, SoloEntry
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.learning import MAX_CLASSES
from ullage.engines.admission.model import Cells
from ullage.engines.admission.pair_gp import MAX_ROWS
from ullage.engines.admission.records import Fingerprint, Partner
from ullage.scheduling.prediction.rows import rows_of

TYPES = {GPU: DeviceProfileRecord(name=GPU)}
NINE = tuple(f"class-{number}" for number in range(9))


def nine_classes() -> dict[Key, ProfileRecord]:
    return {
        ("default", name): profile(
            name, [row(20 * at + n, NINE[(at + n) % 9], 2.0 + 0.1 * n) for n in range(4)]
        )
        for at, name in enumerate(NINE)
    }


def cells(value: float, *names: str) -> Cells:
    shape = (len(names), 10, len(names), 10)
    full = np.full(shape, value, np.float32)
    return Cells(index={name: at for at, name in enumerate(names)}, mean=full, sd=full)


async def test_few_classes_come_at_once_and_the_others_when_nothing_is_urgent() -> None:
    stage = Stage(profiles=nine_classes())
    learner = Learner(
        snapshot=stage.picture,
        publish=stage.published.append,
        clock=stage,
        pace=Pace(),
        deadline_s=60.0,
        executor=Inline,
    )
    assert await learner.step()
    assert len(stage.published[-1][GPU].cells.index) == QUICK_CLASSES
    assert not learner.courses[GPU].wide
    stage.time_s += 100
    assert await learner.step()
    assert len(stage.published[-1][GPU].cells.index) == 9
    assert stage.published[0][GPU].version == stage.published[1][GPU].version
    stage.time_s += 100
    assert not await learner.step()
    learner.close()


def test_new_cells_replace_old_ones_and_the_rest_stays() -> None:
    found = merged(cells(1.0, "a", "b"), cells(2.0, "b", "c"), ["a"])
    assert sorted(found.index) == ["a", "b", "c"]
    for victim, aggressor, figure in (
        ("b", "c", 2.0),
        ("a", "b", 1.0),
        ("b", "b", 2.0),
        ("a", "c", math.nan),
    ):
        mean, sd = found.among([(victim, 50), (aggressor, 50)])
        assert mean[0, 1] == pytest.approx(figure, nan_ok=True)
        assert math.isnan(figure) or sd[0, 1] == figure


def test_no_more_classes_than_the_table_holds_and_those_who_wait_stay() -> None:
    old = cells(1.0, *(f"old-{number:02d}" for number in range(MAX_CLASSES)))
    found = merged(old, cells(2.0, "new"), ["old-47"])
    assert len(found.index) == MAX_CLASSES
    assert {"new", "old-47"} <= found.index.keys()


def test_a_lesson_keeps_two_thousand_pairs_and_few_crowds() -> None:
    pairs = [row(number, NINE[number % 9], 2.0) for number in range(3_000)]
    crowd = replace(
        pairs[0], partners=(*pairs[0].partners, Partner(workload_class="x", percent=10))
    )
    crowds = [replace(crowd, id=f"crowd-{n}", at_s=START + n) for n in range(900)]
    held = {("default", "a"): profile("a", [*pairs, *crowds])}
    rows = kept_rows(rows_of(Snapshot(version=0, taken_at=0.0, profiles=held), GPU))
    assert sum(len(one.partners) == 1 for one in rows) == MAX_ROWS
    assert sum(len(one.partners) == 2 for one in rows) == MOST_CROWDS


def test_no_more_profiles_are_sent_than_the_bound_the_newest_first() -> None:
    many = {
        ("default", f"p-{n:05d}"): replace(
            one := profile(f"p-{n:05d}", [row(n, "b", 2.0)]),
            status=replace(one.status, updated=START + n),
        )
        for n in range(MOST_PROFILES + 50)
    }
    schedule = FitSchedule(Pace())
    schedule.see(Snapshot(version=1, taken_at=0.0, profiles=many, device_profiles=TYPES), START)
    sent, removed = schedule.unsent(10 * MOST_PROFILES)
    assert len(sent) == MOST_PROFILES
    assert removed == ()
    assert ("default", "p-00049") not in sent
    assert schedule.unsent(10) == ({}, ())


def test_a_flood_of_profiles_of_one_namespace_displaces_no_other() -> None:
    flood = {
        ("tenant-b", f"p-{n:05d}"): replace(
            one := profile(f"p-{n:05d}", [row(n, "b", 2.0)]),
            namespace="tenant-b",
            status=replace(one.status, updated=START + 10_000 + n),
        )
        for n in range(MOST_PROFILES + 50)
    }
    schedule, mine = FitSchedule(Pace()), nine_classes()
    held = mine | flood
    schedule.see(Snapshot(version=1, taken_at=0.0, profiles=held, device_profiles=TYPES), START)
    sent, _ = schedule.unsent(10 * MOST_PROFILES)
    assert len(sent) == MOST_PROFILES
    assert mine.keys() <= sent.keys()


def test_a_flood_of_rows_of_one_namespace_displaces_no_other() -> None:
    flood = [row(10_000 + n, f"other-{n % 400}", 2.0) for n in range(4 * MAX_ROWS)]
    mine = [row(number, NINE[number % 9], 2.0) for number in range(300)]
    held = {
        ("default", "a"): profile("a", mine),
        ("tenant-b", "a"): replace(profile("a", flood), namespace="tenant-b"),
    }
    rows = kept_rows(rows_of(Snapshot(version=0, taken_at=0.0, profiles=held), GPU))
    kept = Counter(one.workload_class for one in rows)
    assert kept == {"default/a": 300, "tenant-b/a": MAX_ROWS // 2}


def test_another_word_of_who_learns_from_whom_is_a_lesson() -> None:
    schedule, held = FitSchedule(Pace()), nine_classes()
    alone = Snapshot(version=1, taken_at=0.0, profiles=held, device_profiles=TYPES)
    schedule.see(alone, START)
    before = schedule.courses[GPU].mark
    together = PolicyRecord(knowledge=Knowledge(shared=frozenset({"default"})))
    schedule.see(replace(alone, policy=together), START)
    assert schedule.courses[GPU].mark != before
    task = schedule.next(START, START)
    assert task is not None
    assert task.knowledge == together.knowledge


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.2])
def test_a_declared_figure_that_is_none_stops_no_lesson(value: float) -> None:
    held: dict[Key, ProfileRecord] = dict(nine_classes())
    solo = SoloEntry(device=GPU, share=100, fingerprint=Fingerprint(dram=value))
    held["tenant-b", "sick"] = ProfileRecord(
        namespace="tenant-b", name="sick", workload_class="sick", uid="sick", solo=(solo,)
    )
    task = FitTask(accelerator=GPU, previous=None, fit=True, wanted=("tenant-b/sick",))
    assert "tenant-b/sick" not in run_fit(task, held).model.classes


@pytest.mark.parametrize("gone", ["all", "one"])
def test_a_profile_that_is_gone_is_forgotten(gone: str) -> None:
    schedule, held = FitSchedule(Pace()), nine_classes()
    schedule.see(Snapshot(version=1, taken_at=0.0, profiles=held, device_profiles=TYPES), START)
    schedule.unsent(100)
    rows = schedule.courses[GPU].rows
    rest = {} if gone == "all" else {key: held[key] for key in list(held)[1:]}
    schedule.see(Snapshot(version=2, taken_at=0.0, profiles=rest, device_profiles=TYPES), START)
    assert schedule.courses[GPU].rows == (0 if gone == "all" else rows - 4)
    _, removed = schedule.unsent(100)
    assert len(removed) == (9 if gone == "all" else 1)


def test_types_of_devices_that_a_profile_makes_up_are_not_learned_of() -> None:
    schedule = FitSchedule(Pace())
    made_up = {
        ("default", f"p-{n}"): profile(
            f"p-{n}", [row(n, "b", 2.0, gpu=f"made-up-{n}")], gpu=f"made-up-{n}"
        )
        for n in range(50)
    }
    schedule.see(Snapshot(version=1, taken_at=0.0, profiles=made_up, device_profiles=TYPES), START)
    assert not schedule.courses
    types = {**TYPES, "made-up-7": DeviceProfileRecord(name="made-up-7")}
    schedule.see(Snapshot(version=2, taken_at=0.0, profiles=made_up, device_profiles=types), START)
    assert {name: one.rows for name, one in schedule.courses.items()} == {"made-up-7": 1}
