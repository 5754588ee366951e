# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of an analysis, where matplotlib is at hand; the analysis itself needs none."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.gpu.measured import Data, load
from bench.gpu.predictors import World
from bench.gpu.splits import pair_rows


def draw(paths: Iterable[Path], out: Path, gpu: str = "") -> list[Path]:
    """Traffic against contention, and T(p); every picture names the GPU and the driver.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        matplotlib: Any = importlib.import_module("matplotlib")
    except ModuleNotFoundError as error:
        raise ValueError("--plot needs matplotlib, which is not installed") from error
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    data = load(paths, gpu)
    world = World.of(data.rows)
    return [_traffic(pyplot, data, world, out), _curves(pyplot, data, world, out)]


def _traffic(pyplot: Any, data: Data, world: World, out: Path) -> Path:
    figure, axes = pyplot.subplots()
    rows = pair_rows(data.rows)
    prints = [[one.fingerprint for one in world.sides(row)] for row in rows]
    sums = [math.fsum(one.dram or 0.0 for one in found if one is not None) for found in prints]
    axes.scatter(sums, [one.contention for one in rows], s=8)
    axes.set(xlabel="sum of DRAM demands", ylabel="contention factor", title=data.said())
    return _save(pyplot, figure, out / "gpu-dram-knee.png")


def _curves(pyplot: Any, data: Data, world: World, out: Path) -> Path:
    figure, axes = pyplot.subplots()
    shares = [step / 100 for step in range(20, 101)]
    for name, one in world.profiles.items():
        if one.curve is not None:
            whole = one.curve.seconds(1.0)
            axes.plot(shares, [one.curve.seconds(share) / whole for share in shares], label=name)
    axes.set(xlabel="share", ylabel="T(p) / T(1)", title=data.said())
    axes.legend(fontsize=6)
    return _save(pyplot, figure, out / "gpu-share-curves.png")


def _save(pyplot: Any, figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
