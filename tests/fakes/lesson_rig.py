# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles with rows for the learner, a picture of them that moves, and lessons that go wrong."""

from __future__ import annotations

import os
import pickle
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field, replace
from itertools import count
from typing import ParamSpec, TypeVar

from ullage.api.schedulingpolicy import RiskSettings
from ullage.app.fit_worker import FitAnswer, FitRequest, Key, fit_in_worker
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.records.profile import (
    DeviceProfileRecord,
    ProfileRecord,
    ProfileStatus,
    SoloEntry,
    StepRow,
)
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.records import Fingerprint, Partner

P = ParamSpec("P")
T = TypeVar("T")
GPU = "nvidia-a"
START = 1_700_000_000.0
CLASSES = ("bert", "resnet", "lstm")


def row(number: int, partner: str, slowdown: float, *, gpu: str = GPU, share: int = 50) -> StepRow:
    return StepRow(
        id=f"{gpu}/{number}",
        accelerator=gpu,
        share=share,
        step_s=0.01 * slowdown,
        slowdown=slowdown,
        at_s=START - 2_000_000 + 1_000 * number,
        partners=(Partner(workload_class=partner, percent=100 - share),),
        max_slowdown=2.0,
    )


def profile(workload_class: str, rows: Sequence[StepRow] = (), gpu: str = GPU) -> ProfileRecord:
    solo = SoloEntry(
        device=gpu,
        share=100,
        steps_per_second=100.0,
        sm_util=0.5,
        fingerprint=Fingerprint(sm=0.5, dram=0.2 + 0.1 * (len(workload_class) % 5)),
    )
    status = ProfileStatus(
        solo=(solo,), step_time=tuple(rows), family=f"f/{workload_class}", updated=START
    )
    return ProfileRecord(
        namespace="default",
        name=workload_class,
        workload_class=workload_class,
        uid=workload_class,
        status=status,
    )


def profiles(many: int = 12, *, seed: int = 0, gpu: str = GPU) -> dict[Key, ProfileRecord]:
    """Both directions of so many co-locations."""
    dice, rows = random.Random(seed), {name: list[StepRow]() for name in CLASSES}
    for number in range(many):
        a, b = dice.sample(CLASSES, 2)
        for place, (one, other) in enumerate(((a, b), (b, a))):
            slowdown = 2.0 + 0.1 * len(other) * dice.lognormvariate(0, 0.05)
            entry = row(2 * number + place, other, slowdown, gpu=gpu)
            rows[one].append(replace(entry, at_s=START - 2_000_000 + 1_000 * number))
    return {("default", name): profile(name, found, gpu) for name, found in rows.items()}


def grown(
    held: Mapping[Key, ProfileRecord], number: int, workload_class: str = "bert", gpu: str = GPU
) -> dict[Key, ProfileRecord]:
    """With one more row of a class."""
    key = ("default", workload_class)
    status = held[key].status
    more = (*status.step_time, row(number, "resnet", 2.5, gpu=gpu))
    return {**held, key: replace(held[key], status=replace(status, step_time=more))}


@dataclass(slots=True)
class Stage:
    """The clock, the picture, and what was published."""

    profiles: Mapping[Key, ProfileRecord] = field(default_factory=profiles)
    device_profiles: Mapping[str, DeviceProfileRecord] = field(
        default_factory=lambda: {GPU: DeviceProfileRecord(name=GPU)}
    )
    is_leader: bool = True
    risk: RiskSettings = field(default_factory=RiskSettings)
    time_s: float = START + 10_000
    published: list[Mapping[str, LearnedModel]] = field(default_factory=list)
    _version: count[int] = field(default_factory=lambda: count(1))

    def now(self) -> float:
        return self.time_s

    def monotonic(self) -> float:
        return self.time_s

    def picture(self) -> Snapshot | None:
        if not self.is_leader:
            return None
        return Snapshot(
            version=next(self._version),
            taken_at=self.time_s,
            profiles=self.profiles,
            device_profiles=self.device_profiles,
            policy=PolicyRecord(risk=self.risk),
        )


class Inline(Executor):
    """Lessons at once and in this process, for tests of anything but processes."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        found: Future[T] = Future()
        try:
            found.set_result(fn(*args, **kwargs))
        except ValueError as error:
            found.set_exception(error)
        return found


def hang(_: bytes) -> bytes:
    time.sleep(600)
    return b""


def die(_: bytes) -> bytes:
    os._exit(11)


def die_on_fits(payload: bytes) -> bytes:
    lesson: FitRequest = pickle.loads(payload)
    if lesson.task is not None and lesson.task.fit:
        os._exit(11)
    return fit_in_worker(payload)


def answer_at_once(payload: bytes) -> bytes:
    """A model of as many rows as there are, without the numerics."""
    lesson: FitRequest = pickle.loads(payload)
    fit_in_worker(pickle.dumps(replace(lesson, task=None)))
    if lesson.task is None:
        return b""
    from ullage.app import fit_worker

    rows = sum(len(one.rows) for one in fit_worker._SHELF.values())
    model = LearnedModel(accelerator=lesson.task.accelerator, rows=rows)
    return pickle.dumps(FitAnswer(model=model, seconds=0.5, risk=lesson.task.risk))
