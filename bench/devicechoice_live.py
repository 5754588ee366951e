# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The estimates that the operator itself makes, on published tables of speeds and op times.

Every job type is measured on one or two of three device types; the rest of the table is what the
cluster knows of others. Every network is a profile with an op table, as the API gives it; the
left-out one has no times. It must never let a left-out job reach its own estimate.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from bench.devicechoice_networks import family_of, mean_of, median_of
from bench.report import ROOT, Figure, Row
from ullage.api.devices import Backend, GPUMode, Health, ObservedDevice
from ullage.api.labels import API_VERSION
from ullage.cli.profiles import checked
from ullage.cli.traces import row_of
from ullage.cluster.codecs.profile import op_table_to_wire
from ullage.cluster.projection.rest import project_profile
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import Method, OpTable, ProfileRecord, ProfileStatus, SoloEntry
from ullage.cluster.records.snapshot import Snapshot
from ullage.engines.devicechoice.features import TimedOp
from ullage.engines.devicechoice.fit import Network, Networks, measured_s
from ullage.engines.profiles.traces import TracedOp, together
from ullage.scheduling.learning.estimates import Evidence, estimated
from ullage.scheduling.learning.loop import ProfileUpdates
from ullage.scheduling.learning.throughput import typical
from ullage.scheduling.learning.written_speeds import with_estimates
from ullage.scheduling.model.plan import SetProfile

TABLE = ROOT / "operator" / "ullage_simulate" / "data" / "solo.json"
PROFILED = "profiled-gpu"
OTHER = "other-gpu"
NAMESPACE = "bench"
NOW = 1.7e9
Left = Callable[[ProfileRecord], str]


@dataclass(slots=True)
class Score:
    """How far estimates were off."""

    ratios: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    inside: int = 0
    refused: int = 0
    """Types for which the operator says that it has no estimate."""
    methods: Counter[Method] = field(default_factory=Counter)

    @property
    def median(self) -> float:
        """Median error in percent, of at least one estimate."""
        return float(100 * np.median(np.expm1(np.abs(self.ratios))))

    def text(self) -> str:
        """For a table: error of the speed, and how many truths lie within the bounds."""
        if not self.ratios:
            return f"no estimate: {self.refused} of {self.refused} types are said to be unknown"
        base = 100 * np.expm1(np.abs(self.plain))
        ways = ", ".join(f"{name} {count}" for name, count in sorted(self.methods.items()))
        return (
            f"off by {self.median:.0f} % (median; average ratio: {np.median(base):.0f} %),"
            f" within the bounds {100 * self.inside / max(1, len(self.ratios)):.0f} %,"
            f" {len(self.ratios)} estimates: {ways}; no estimate {self.refused}"
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
        namespace=NAMESPACE,
        name=name,
        workload_class=name,
        family=name.split(" (")[0],
        status=ProfileStatus(solo=solo),
    )


def _speeds(profile: ProfileRecord) -> dict[str, float]:
    return {row.device: row.steps_per_second for row in profile.status.solo}


def as_imported(name: str, network: Network, accelerator: str) -> ProfileRecord:
    """A network as the operator reads the profile that an import of its trace writes.

    Args:
        name: Of the network.
        network: Its ops.
        accelerator: Type that the ops were timed on; empty = the profile holds no times.
    """
    rows, _ = together([_traced(one, timed=bool(accelerator)) for one in network], 1)
    table = OpTable(ops=tuple(row_of(row) for row in rows), accelerator=accelerator)
    body: dict[str, object] = {
        "apiVersion": API_VERSION,
        "kind": "WorkloadProfile",
        # the one without times comes first in line: a cycle makes the estimates of two profiles
        "metadata": {
            "name": f"{int(bool(accelerator))}-{name.replace('_', '-')}",
            "namespace": NAMESPACE,
        },
        "spec": {"class": name, "family": family_of(name), "opTable": op_table_to_wire(table)},
    }
    seen = json.loads(json.dumps(checked(body, None)))
    seen["metadata"] |= {"uid": f"uid-{name}", "generation": 1, "resourceVersion": "1"}
    return project_profile(seen)


def _traced(one: TimedOp, *, timed: bool) -> TracedOp:
    op = one.op
    return TracedOp(
        type=op.kind,
        count=float(op.count),
        seconds=one.forward_s + one.backward_s if timed else None,
        flops=op.flops,
        bytes_read=op.input_bytes + op.parameter_bytes,
        parameter_bytes=op.parameter_bytes,
        bytes_written=op.output_bytes,
        kernel=op.kernel,
    )


def left_out(networks: Networks, away: Callable[[str], str]) -> dict[str, tuple[float, bool]]:
    """What a cycle of the operator estimates of each network, without those that go with it.

    Args:
        networks: Measured op tables by name.
        away: Names what is left out together.

    Returns:
        predicted / measured - 1, and whether the truth lies within the bounds, by network.
    """
    found: dict[str, tuple[float, bool]] = {}
    for name in sorted(networks):
        mine = as_imported(name, networks[name], "")
        kept = [one for one in sorted(networks) if away(one) != away(name)]
        others = [as_imported(one, networks[one], PROFILED) for one in kept]
        profiles = {(one.namespace, one.name): one for one in (mine, *others)}
        snapshot = Snapshot(version=1, taken_at=NOW, gpu_nodes=_nodes(), profiles=profiles)
        lessons = with_estimates(snapshot, NOW, 1, ProfileUpdates(dropped={}))
        (written,) = (
            one
            for one in lessons.actions
            if isinstance(one, SetProfile) and one.target.name == mine.name
        )
        (speed,) = (one for one in written.status.throughput if one.accelerator == PROFILED)
        truth = 1 / measured_s(networks[name])
        inside = (speed.low or 0.0) <= truth <= (speed.high or math.inf)
        found[name] = truth / speed.steps_per_second - 1.0, inside
    return found


def _nodes() -> Mapping[str, GPUNodeRecord]:
    devices = tuple(
        ObservedDevice(
            uuid=f"GPU-{kind}",
            model=kind,
            product_name=kind,
            memory_mib=16384,
            contexts=1,
            modes=(GPUMode.EXCLUSIVE,),
            health=Health.HEALTHY,
            backend=Backend.EXCLUSIVE,
        )
        for kind in (PROFILED, OTHER)
    )
    node = GPUNodeRecord(name="n", uid="n", epoch=1, retire=False, desired=(), devices=devices)
    return {node.name: node}


def measure_networks(networks: Networks) -> tuple[dict[str, float], list[Row]]:
    """Figures and table of the operator's estimates from op tables."""
    rows = [Row(what=f"step as the operator estimates it, {len(networks)} op tables", ours="")]
    figures: dict[str, float] = {}
    ways: dict[str, Callable[[str], str]] = {"left_out": str, "left_out_family": family_of}
    for word, away in ways.items():
        found = left_out(networks, away)
        errors = {name: error for name, (error, _) in found.items()}
        inside = sum(held for _, held in found.values()) / len(found)
        figures |= {
            f"live_{word}_mean": mean_of(errors),
            f"live_{word}_median": median_of(errors),
            f"live_{word}_inside": inside,
        }
        each = ", ".join(f"{name} {100 * error:+.1f}" for name, error in errors.items())
        rows += [
            Row(
                what=f"  {'network' if away is str else 'family'} left out",
                ours=f"mean {mean_of(errors):.1f} %, median {median_of(errors):.1f} %,"
                f" within the bounds {inside:.0%}",
                limit="<= 7 % mean" if away is str else "",
            ),
            Row(what="    by network", ours=each),
        ]
    return figures, rows


def measure() -> tuple[dict[str, Figure], list[Row]]:
    """Figures and table of the operator's estimates from speeds; ``None`` = it makes none."""
    classes = read_classes()
    rows = [Row(what=f"speeds as the operator estimates them, {len(classes)} classes", ours="")]
    figures: dict[str, Figure] = {}
    ways: dict[str, Left] = {
        "class": lambda one: one.workload_class,
        "family": lambda one: one.family,
    }
    for name, left in ways.items():
        for known in (1, 2):
            score = _scored(classes, left, known)
            rows.append(Row(what=f"  {name} left out, {known} type(s) measured", ours=score.text()))
            made = len(score.ratios)
            figures |= {
                f"live_{name}_{known}_median": score.median if made else None,
                f"live_{name}_{known}_inside": score.inside / made if made else None,
                f"live_{name}_{known}_estimates": made,
                f"live_{name}_{known}_refused": score.refused,
            }
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
            made = estimated(seen, evidence)
            score.refused += not made
            for one in made:
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
