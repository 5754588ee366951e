# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Total compute time of networks left out, from the op times of the others.

The profiles lie in the repository. Features are chosen again inside every fold: what a network is
judged by must never see the network. Trivial baselines are printed beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import nnls

from bench.devicechoice_layers import read_layers
from bench.report import ROOT, Row
from ullage.engines.devicechoice.features import DESIGNS, Design, FitSplit, LayerOp, SizeMeasure
from ullage.engines.devicechoice.fit import (
    Network,
    Networks,
    compute_s,
    learn_op_times,
    left_out_errors,
    measured_s,
)
from ullage.engines.devicechoice.intervals import LEVEL

PROFILES: Final = ROOT / "tests" / "data" / "devicechoice" / "pipedream"
NAMES: Final = (
    *("alexnet", "densenet121", "inception_v3", "nasnetalarge", "nasnetamobile", "resnet101"),
    *("resnet18", "resnet50", "resnext101", "resnext50", "squeezenet1_0", "vgg16"),
)
SWEEP: Final = (0.8, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True, slots=True, kw_only=True)
class Nested:
    """Errors of left-out networks, each with the design that the others chose.

    Attributes:
        errors: predicted / measured - 1 by network.
        designs: The design of each fold.
        inside: Whether the interval held, by network.
    """

    errors: Mapping[str, float]
    designs: Mapping[str, Design]
    inside: Mapping[str, bool]

    @property
    def mean(self) -> float:
        """Mean absolute error in percent."""
        return mean_of(self.errors)

    @property
    def median(self) -> float:
        """Median absolute error in percent."""
        return median_of(self.errors)


def read_networks(folder: Path = PROFILES) -> Networks:
    """The measured networks."""
    return {
        name: read_layers((folder / f"{name}.txt").read_text(encoding="utf-8")) for name in NAMES
    }


def family_of(name: str) -> str:
    """Networks of one construction; residual networks with and without groups are one."""
    return next((one for one in ("nasnet", "resne") if name.startswith(one)), name)


def nested(networks: Networks, group: Callable[[str], str]) -> Nested:
    """Leave each group out, choose the design and the interval on the rest, predict it."""
    errors: dict[str, float] = {}
    designs: dict[str, Design] = {}
    inside: dict[str, bool] = {}
    for left in sorted({group(name) for name in networks}):
        rest = {name: ops for name, ops in networks.items() if group(name) != left}
        learned = learn_op_times(rest, group=group)
        factor = learned.factor
        for name in sorted(set(networks) - set(rest)):
            said = compute_s(learned.times, [one.op for one in networks[name]])
            errors[name] = said / measured_s(networks[name]) - 1.0
            designs[name] = learned.times.design
            inside[name] = 1 / factor <= 1 + errors[name] <= factor
    return Nested(errors=errors, designs=designs, inside=inside)


def measure(networks: Networks, tick: Callable[[str], None]) -> tuple[dict[str, float], list[Row]]:
    """Figures and table of this section."""
    alone = nested(networks, str)
    tick("networks left out, design chosen inside")
    family = nested(networks, family_of)
    tick("families left out")
    ops = sum(len(network) for network in networks.values())
    rows = [Row(what=f"total compute time, {len(networks)} networks, {ops} ops", ours="")]
    rows += _baselines(networks)
    rows += [
        Row(what=f"  fixed: {design.name()}", ours=_both(left_out_errors(networks, design)))
        for design in DESIGNS
    ]
    fixed = Design(size=SizeMeasure.LARGER, split=FitSplit.KERNEL)
    rows += [
        Row(
            what=f"  the last, kinds covering {part:.0%} fitted, rest medians",
            ours=_both(left_out_errors(networks, fixed, heavy_part=part)),
        )
        for part in SWEEP
    ]
    chosen = ", ".join(sorted({design.name() for design in alone.designs.values()}))
    rows += [
        Row(
            what="  design chosen inside each fold (loo_mean, loo_median)",
            ours=_both(alone.errors),
            baseline=f"chosen: {chosen}",
            limit="<= 10 % mean, <= 6.5 % median",
        ),
        Row(what="    by network", ours=_each(alone.errors)),
        Row(what="  the same, whole family left out", ours=_both(family.errors)),
        Row(what="    by network", ours=_each(family.errors)),
        Row(
            what="  interval holds, network / family left out",
            ours=f"{_part(alone):.0%} / {_part(family):.0%}",
            baseline=f"nominal {LEVEL:.0%}",
        ),
    ]
    figures = {
        "loo_mean": alone.mean,
        "loo_median": alone.median,
        "lofo_mean": family.mean,
        "lofo_median": family.median,
        "coverage_loo": _part(alone),
        "coverage_lofo": _part(family),
    }
    return figures, rows


def mean_of(errors: Mapping[str, float]) -> float:
    """Mean absolute error in percent."""
    return 100.0 * float(np.mean(np.abs(list(errors.values()))))


def median_of(errors: Mapping[str, float]) -> float:
    """Median absolute error in percent."""
    return 100.0 * float(np.median(np.abs(list(errors.values()))))


def _both(errors: Mapping[str, float]) -> str:
    return f"mean {mean_of(errors):.1f} %, median {median_of(errors):.1f} %"


def _each(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * error:+.1f}" for name, error in sorted(errors.items()))


def _part(result: Nested) -> float:
    return float(np.mean(list(result.inside.values())))


def _baselines(networks: Networks) -> list[Row]:
    full = Design(size=SizeMeasure.INPUT, split=FitSplit.TYPE)
    simple: dict[str, tuple[Callable[[LayerOp], tuple[float, ...]], bool]] = {
        "input size, linear": (lambda op: (1.0, op.input_bytes), False),
        "input size + quadratic": (lambda op: (1.0, op.input_bytes, op.input_bytes**2), False),
        "input size + FLOPs + parameter bytes, weights 1 / y": (full.row, True),
    }
    rows = [Row(what="  all ops by one median", ours=_both(_by_median(networks)))]
    for name, (columns, relative) in simple.items():
        errors = {
            left: _plain(
                [networks[one] for one in NAMES if one != left], networks[left], columns, relative
            )
            for left in NAMES
        }
        rows.append(Row(what=f"  {name}", ours=_both(errors)))
    return rows


def _by_median(networks: Networks) -> dict[str, float]:
    errors = {}
    for left, network in networks.items():
        rest = [one for name, many in networks.items() if name != left for one in many]
        each = float(np.median([one.forward_s + one.backward_s for one in rest]))
        errors[left] = each * len(network) / measured_s(network) - 1.0
    return errors


def _plain(
    rest: Sequence[Network],
    left: Network,
    columns: Callable[[LayerOp], tuple[float, ...]],
    relative: bool,
) -> float:
    """One fit per op type of forward + backward; a type that the rest lacks counts as 0."""
    said = 0.0
    for kind in {one.op.kind for one in left}:
        rows = [one for network in rest for one in network if one.op.kind == kind]
        if not rows:
            continue
        table = np.array([columns(one.op) for one in rows])
        took = np.array([one.forward_s + one.backward_s for one in rows])
        if relative:
            kept = took > 0
            table, took = table[kept] / took[kept, None], np.ones(int(kept.sum()))
        if not len(took):
            continue
        scale = np.maximum(table.max(axis=0), 1e-300)
        fitted = nnls(table / scale, took)[0] / scale
        said += sum(float(np.dot(columns(one.op), fitted)) for one in left if one.op.kind == kind)
    return said / measured_s(left) - 1.0
