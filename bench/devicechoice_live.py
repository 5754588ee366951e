# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The estimates that the operator itself makes, on a published table of speeds.

Every job type is measured on one or two of three device types; the rest of the table is what the
cluster knows of others. It must never let a left-out job reach its own estimate.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from bench.report import ROOT, Row
from ullage.cluster.records.profile import Method, ProfileRecord, ProfileStatus, SoloEntry
from ullage.scheduling.learning.estimates import Evidence, estimated
from ullage.scheduling.learning.throughput import typical

TABLE = ROOT / "operator" / "ullage" / "simulate" / "data" / "solo.json"
Left = Callable[[ProfileRecord], str]


@dataclass(slots=True)
class Score:
    """How far estimates were off."""

    ratios: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    inside: int = 0
    methods: Counter[Method] = field(default_factory=Counter)

    def text(self) -> str:
        """For a table: error of the speed, and how many truths lie within the bounds."""
        off = 100 * np.expm1(np.abs(self.ratios))
        base = 100 * np.expm1(np.abs(self.plain))
        ways = ", ".join(f"{name} {count}" for name, count in sorted(self.methods.items()))
        return (
            f"off by {np.median(off):.0f} % (median; average ratio: {np.median(base):.0f} %),"
            f" within the bounds {100 * self.inside / max(1, len(self.ratios)):.0f} %,"
            f" {len(self.ratios)} estimates: {ways}"
        )


def read_classes() -> list[ProfileRecord]:
    """Job types on one device as classes; speeds of 0 did not run and are left out."""
    body = json.loads(TABLE.read_text(encoding="utf-8"))
    kinds = body["types"]
    found: list[ProfileRecord] = []
    for name, gang, *rates in body["rows"]:
        if gang == 1:
            speeds = {kind: rate for kind, rate in zip(kinds, rates, strict=True) if rate > 0}
            found.append(a_class(name, speeds))
    return found


def a_class(name: str, speeds: dict[str, float]) -> ProfileRecord:
    """A class measured on these types; its family is its name without the batch."""
    solo = tuple(
        SoloEntry(device=kind, share=100, steps_per_second=rate, samples=10)
        for kind, rate in sorted(speeds.items())
    )
    return ProfileRecord(
        namespace="bench",
        name=name,
        workload_class=name,
        family=name.split(" (")[0],
        status=ProfileStatus(solo=solo),
    )


def _speeds(profile: ProfileRecord) -> dict[str, float]:
    return {row.device: row.steps_per_second for row in profile.status.solo}


def measure() -> tuple[dict[str, float], list[Row]]:
    """Figures and table of this section."""
    classes = read_classes()
    rows = [Row(what=f"speeds as the operator estimates them, {len(classes)} classes", ours="")]
    figures: dict[str, float] = {}
    ways: dict[str, Left] = {
        "class": lambda one: one.workload_class,
        "family": lambda one: one.family,
    }
    for name, left in ways.items():
        for known in (1, 2):
            score = _scored(classes, left, known)
            rows.append(Row(what=f"  {name} left out, {known} type(s) measured", ours=score.text()))
            figures[f"live_{name}_{known}_median"] = float(
                100 * np.median(np.expm1(np.abs(score.ratios)))
            )
            figures[f"live_{name}_{known}_inside"] = score.inside / max(1, len(score.ratios))
    return figures, rows


def _scored(classes: list[ProfileRecord], left: Left, known: int) -> Score:
    score = Score()
    for mine in classes:
        others = [one for one in classes if left(one) != left(mine)]
        average = typical(others)
        for have, kind, truth in _hidden(mine, known):
            seen = a_class(mine.name, have)
            evidence = Evidence(
                profiles=[*others, seen], devices={}, accelerators=frozenset({kind})
            )
            for one in estimated(seen, evidence):
                score.ratios.append(math.log(one.steps_per_second / truth))
                score.inside += (one.low or 0.0) <= truth <= (one.high or math.inf)
                score.methods[one.method] += 1
                ratios = [
                    rate * average[kind].steps_per_second / average[name].steps_per_second
                    for name, rate in have.items()
                ]
                score.plain.append(math.log(float(np.mean(ratios)) / truth))
    return score


def _hidden(mine: ProfileRecord, known: int) -> Iterator[tuple[dict[str, float], str, float]]:
    """Every way to know so many speeds of a class and ask for one of the others."""
    speeds = _speeds(mine)
    for have in combinations(sorted(speeds), known):
        for kind in sorted(speeds.keys() - set(have)):
            yield {name: speeds[name] for name in have}, kind, speeds[kind]
