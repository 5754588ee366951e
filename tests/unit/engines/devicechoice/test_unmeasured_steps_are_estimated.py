# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The synchronisation term, rooflines of unseen types, and transfer from one measured type."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from bench.devicechoice_sync import SyncRow, fit_sync, ring_scaled
from ullage.engines.devicechoice.features import LayerOp
from ullage.engines.devicechoice.roofline import RooflineDevice, correction_of, roofline_step
from ullage.engines.devicechoice.transfer import Config, learn_transfer

DEVICE = RooflineDevice(
    accelerator="new", peak_flops={"float32": 1e13}, bytes_per_s=1e12, memory_bytes=16e9
)
DENSE = LayerOp(kind="MatMul", input_bytes=1e6, output_bytes=1e6, flops=1e10)
COPY = LayerOp(kind="ReLU", input_bytes=1e9, output_bytes=1e9)


def sync_rows(alpha: float, beta: float) -> list[SyncRow]:
    return [
        SyncRow(parameters=many, extra_s=alpha + beta * many, step_s=1.0)
        for many in (1e6, 5e6, 2e7, 1e8)
    ]


@pytest.mark.parametrize("relative", [True, False])
def test_the_term_is_found_again(relative: bool) -> None:
    term = fit_sync(4, sync_rows(0.01, 1e-9), relative=relative)
    assert (term.gpus, term.rows, term.superlinear) == (4, 4, 0)
    assert term.seconds(1e7) == pytest.approx(0.02, rel=1e-6)


def test_faster_than_linear_costs_nothing_and_is_marked() -> None:
    term = fit_sync(2, sync_rows(-0.05, 0.0))
    assert term.seconds(1e8) == 0
    assert term.superlinear == 4


def test_no_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="no measured step on 8"):
        fit_sync(8, [])


def test_two_counts_give_a_third_and_never_a_faster_one() -> None:
    def step(gpus: int) -> float:
        return 0.1 + 0.04 * (gpus - 1) / gpus

    said = ring_scaled(low=(1, step(1)), high=(2, step(2)), gpus=8)
    assert said.step_s == pytest.approx(step(8))
    assert not said.superlinear
    fell = ring_scaled(low=(1, 0.2), high=(2, 0.1), gpus=8)
    assert fell.superlinear
    assert fell.step_s == 0.1
    with pytest.raises(ValueError, match="rising"):
        ring_scaled(low=(2, 0.1), high=(2, 0.1), gpus=4)


def test_the_slower_of_arithmetic_and_memory_binds() -> None:
    dense = roofline_step(DEVICE, [DENSE], "float32", efficiency=0.5)
    assert dense.step_s == pytest.approx(3 * 1e10 / 5e12)
    copy = roofline_step(DEVICE, [replace(COPY, count=2)], "float32")
    assert copy.step_s == pytest.approx(3 * 2 * 2e9 / 1e12)


@pytest.mark.parametrize("wrong", [{"efficiency": 0.0}, {"efficiency": 1.5}, {"correction": 0.0}])
def test_parts_of_a_peak_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="efficiency must be in"):
        roofline_step(DEVICE, [DENSE], "float32", **wrong)


def test_confidence_falls_with_every_extrapolation() -> None:
    near, far = (
        roofline_step(DEVICE, [DENSE], "float32", extrapolations=steps).confidence
        for steps in (1, 2)
    )
    assert far < near < 1


def test_one_measured_type_corrects_another() -> None:
    ops = [DENSE, COPY]
    assert correction_of(DEVICE, ops, "float32", 0.1) * roofline_step(
        DEVICE, ops, "float32"
    ).step_s == pytest.approx(0.1)
    twice = replace(DEVICE, peak_flops={"float32": 2e13}, bytes_per_s=2e12)
    factor = correction_of(DEVICE, ops, "float32", 0.1)
    said = roofline_step(twice, ops, "float32", correction=factor).step_s
    assert said == pytest.approx(0.05)


def test_an_unknown_dtype_says_what_the_profile_lacks() -> None:
    with pytest.raises(ValueError, match="DeviceProfile new needs"):
        roofline_step(DEVICE, [DENSE], "int4")
    with pytest.raises(ValueError, match="measured step"):
        correction_of(DEVICE, [DENSE], "float32", 0.0)


def siblings(families: dict[str, float], seed: int = 3) -> list[tuple[Config, float]]:
    """Jobs whose ratio between two types is that of their family, with 3 % noise."""
    rng = np.random.default_rng(seed)
    rows = []
    for family, ratio in families.items():
        for batch in (8, 16, 32, 64, 128):
            config = Config(family=family, batch=batch, gpus=1, step_s=0.01 * batch)
            rows.append((config, config.step_s * ratio * math.exp(rng.normal(0, 0.03))))
    return rows


def test_a_family_tells_the_ratio_of_its_siblings() -> None:
    transfer = learn_transfer(siblings({"a": 0.2, "b": 1.5}))
    for family, ratio in (("a", 0.2), ("b", 1.5)):
        said = transfer.step(Config(family=family, batch=24, gpus=1, step_s=0.24))
        assert said.value_s == pytest.approx(0.24 * ratio, rel=0.1)
        assert said.low_s <= 0.24 * ratio <= said.high_s


def test_a_strange_family_is_less_sure() -> None:
    transfer = learn_transfer(siblings({"a": 0.2, "b": 1.5}))
    known, strange = (
        transfer.step(Config(family=family, batch=24, gpus=1, step_s=0.24)) for family in "az"
    )
    assert strange.high_s / strange.low_s > 2 * known.high_s / known.low_s


def test_rows_that_repeat_one_another_make_no_sure_transfer() -> None:
    row = Config(family="a", batch=8, gpus=1, step_s=0.08), 0.016
    said = learn_transfer([row] * 5).step(Config(family="b", batch=64, gpus=1, step_s=0.5))
    assert said.high_s / said.low_s > 3


def test_bounds_cover_most_rows_and_not_the_oddest() -> None:
    """Four of five residuals of a normal are within 1.3 of its spread."""
    rows = siblings({"a": 0.2, "b": 1.5, "c": 0.7, "d": 3.0})
    assert 1.0 <= learn_transfer(rows).spread < 2.0


def test_time_scales_with_the_unit() -> None:
    rows = siblings({"a": 0.2, "b": 1.5})
    in_ms = [(replace(one, step_s=one.step_s * 1e3), there * 1e3) for one, there in rows]
    config = Config(family="a", batch=24, gpus=1, step_s=0.24)
    plain = learn_transfer(rows).step(config)
    scaled = learn_transfer(in_ms).step(replace(config, step_s=240.0))
    assert scaled.value_s == pytest.approx(plain.value_s * 1e3)


def test_what_cannot_be_learned_is_refused() -> None:
    rows = siblings({"a": 1.0})
    with pytest.raises(ValueError, match="at least 3"):
        learn_transfer(rows[:2])
    with pytest.raises(ValueError, match="did not fit"):
        learn_transfer([*rows, (rows[0][0], 0.0)])
    with pytest.raises(ValueError, match="above 0"):
        Config(family="a", batch=1, gpus=1, step_s=0.0)
