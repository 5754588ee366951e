# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Op times are fitted per kind, and networks that were left out are predicted within bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from bench.devicechoice_networks import family_of, mean_of, median_of, nested, read_networks
from ullage.api.words import Kernel
from ullage.engines.devicechoice.features import (
    DESIGNS,
    Design,
    FitSplit,
    LayerOp,
    SizeMeasure,
    TimedOp,
)
from ullage.engines.devicechoice.fit import (
    Network,
    Networks,
    compute_s,
    fit_op_times,
    learn_op_times,
    left_out_errors,
)
from ullage.engines.devicechoice.intervals import around, factor_of
from ullage.engines.devicechoice.predict import TrainingWork, cost_of, training_interval

DESIGN = Design(size=SizeMeasure.LARGER, split=FitSplit.KERNEL)


@cache
def networks() -> Networks:
    return read_networks()


def timed(kind: str, size: float, seconds: float, kernel: Kernel | None = None) -> TimedOp:
    op = LayerOp(kind=kind, kernel=kernel, input_bytes=size, output_bytes=size)
    return TimedOp(op=op, forward_s=seconds, backward_s=2 * seconds)


def linear(
    kind: str, per_byte: float, start: float = 0.0, kernel: Kernel | None = None
) -> tuple[TimedOp, ...]:
    return tuple(
        timed(kind, size, start + per_byte * size, kernel) for size in (1e6, 2e6, 3e6, 5e6, 8e6)
    )


def test_a_law_is_found_again_and_carried_beyond_what_was_measured() -> None:
    times = fit_op_times([linear("Conv2d", 1e-9, 1e-4)], DESIGN)
    inside = LayerOp(kind="Conv2d", input_bytes=4e6, output_bytes=1e6)
    assert compute_s(times, [inside]) == pytest.approx(3 * (1e-4 + 4e-3), rel=1e-6)
    beyond = replace(inside, input_bytes=9e6)
    assert compute_s(times, [beyond]) == pytest.approx(3 * (1e-4 + 9e-3), rel=1e-6)


def test_coefficients_are_never_negative() -> None:
    falling = tuple(timed("a", size, 1e-3 / size) for size in (1.0, 2.0, 3.0, 4.0, 5.0))
    line = fit_op_times([falling], DESIGN).lines["a"]
    assert min(line.forward + line.backward) >= 0


def test_kernel_classes_are_fitted_apart_and_unseen_ones_take_the_type() -> None:
    fast = linear("Conv2d", 1e-9, kernel=Kernel.POINTWISE)
    slow = linear("Conv2d", 9e-9, kernel=Kernel.DEPTHWISE)
    times = fit_op_times([fast, slow], DESIGN)
    assert compute_s(times, [fast[0].op]) == pytest.approx(3e-3, rel=1e-6)
    assert compute_s(times, [slow[0].op]) == pytest.approx(27e-3, rel=1e-6)
    grouped = replace(fast[0].op, kernel=Kernel.GROUPED)
    assert 3e-3 < compute_s(times, [grouped]) < 27e-3


def test_light_ops_count_as_the_median_and_host_ops_as_theirs() -> None:
    rare = (timed("Rare", 1.0, 1.0), timed("Rare", 9.0, 3.0), timed("Other", 1.0, 2.0))
    host = tuple(
        replace(one, op=replace(one.op, on_cpu=True)) for one in (timed("Load", 1, 5.0),) * 2
    )
    times = fit_op_times([linear("Conv2d", 1e-9), rare + host], DESIGN)
    assert compute_s(times, [replace(rare[0].op, count=4)]) == pytest.approx(4 * 6.0)
    assert compute_s(times, [host[0].op]) == pytest.approx(15.0)


def test_a_count_is_so_many_ops() -> None:
    times = fit_op_times(list(networks().values()), DESIGN)
    op = networks()["vgg16"][0].op
    thrice = compute_s(times, [replace(op, count=3)])
    assert thrice == pytest.approx(3 * compute_s(times, [op]))


def test_equal_ops_count_the_same_in_one_row_or_in_many() -> None:
    apart = {
        name: tuple(
            replace(one, forward_s=one.forward_s + one.backward_s, backward_s=0.0)
            for one in network
        )
        for name, network in networks().items()
        if name in ("alexnet", "resnet18", "resnet50", "squeezenet1_0", "vgg16")
    }
    joined = {name: in_one_row(network) for name, network in apart.items()}
    assert len(joined["resnet50"]) < len(apart["resnet50"]) / 3
    one, other = learn_op_times(apart), learn_op_times(joined)
    assert one.times.design == other.times.design
    assert dict(one.errors) == pytest.approx(dict(other.errors))
    assert one.times.light_s == pytest.approx(other.times.light_s)


def in_one_row(network: Network) -> Network:
    """Equal ops once, with their number and mean time."""
    took: dict[LayerOp, list[float]] = {}
    for one in network:
        took.setdefault(one.op, []).append(one.forward_s)
    return tuple(
        TimedOp(op=replace(op, count=len(times)), forward_s=float(np.mean(times)), backward_s=0.0)
        for op, times in took.items()
    )


def test_the_median_of_light_ops_counts_executions() -> None:
    often = replace(timed("Light", 1.0, 1.0), op=replace(timed("Light", 1.0, 1.0).op, count=3))
    seldom = timed("Rare", 1.0, 9.0)
    times = fit_op_times([linear("Conv2d", 1e-9), (often, seldom)], DESIGN)
    assert times.light_s == pytest.approx(3.0)
    even = replace(often, op=replace(often.op, count=1))
    times = fit_op_times([linear("Conv2d", 1e-9), (even, seldom)], DESIGN)
    assert times.light_s == pytest.approx(15.0)


def test_left_out_networks_are_within_bounds_and_better_than_input_size_alone() -> None:
    errors = left_out_errors(networks(), DESIGN)
    assert len(errors) == 12
    assert mean_of(errors) <= 10.0
    assert median_of(errors) <= 6.5
    plain = Design(size=SizeMeasure.INPUT, split=FitSplit.TYPE, arithmetic=False)
    assert mean_of(left_out_errors(networks(), plain)) > 2 * mean_of(errors)


def test_a_left_out_network_does_not_reach_its_own_prediction() -> None:
    slow = dict(networks())
    slow["vgg16"] = tuple(
        replace(one, forward_s=10 * one.forward_s, backward_s=10 * one.backward_s)
        for one in slow["vgg16"]
    )
    before, after = (left_out_errors(one, DESIGN)["vgg16"] for one in (networks(), slow))
    assert 1 + after == pytest.approx((1 + before) / 10)


def test_the_design_is_chosen_on_the_rest() -> None:
    few = {name: networks()[name] for name in ("alexnet", "resnet18", "squeezenet1_0", "vgg16")}
    result = nested(few, str)
    assert set(result.errors) == set(few)
    for name, design in result.designs.items():
        rest = {one: ops for one, ops in few.items() if one != name}
        assert design == learn_op_times(rest).times.design


def test_one_network_leaves_nothing_to_choose_by() -> None:
    assert learn_op_times({"vgg16": networks()["vgg16"]}).times.design == DESIGNS[0]
    assert left_out_errors({"vgg16": networks()["vgg16"]}, DESIGN) == {}


def test_families_are_left_out_together() -> None:
    assert {family_of(name) for name in ("resnet18", "resnext101")} == {"resne"}
    assert mean_of(left_out_errors(networks(), DESIGN, group=family_of)) > mean_of(
        left_out_errors(networks(), DESIGN)
    )


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: fit_op_times([], DESIGN), "no op ran"),
        (lambda: fit_op_times([linear("a", 1.0)], DESIGN, heavy_part=0.0), "heavy_part"),
        (lambda: learn_op_times({}, []), "at least one design"),
        (lambda: factor_of([0.1], level=1.0), "level"),
        (lambda: around(1.0, 0.9), "factor"),
        (lambda: TrainingWork(samples=0, epochs=1, batch_per_gpu=1), "at least 1"),
        (lambda: TrainingWork(samples=1, epochs=1, batch_per_gpu=1).steps(0), "gpus"),
        (lambda: cost_of(1.0, -1.0), "price"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


def test_intervals_come_from_left_out_errors() -> None:
    errors = [0.0, 0.1, -0.1, 0.2, 0.05, 0.02, 0.3, -0.02, 0.01]
    assert factor_of(errors) == pytest.approx(1.2)
    assert factor_of([0.1]) == pytest.approx(2.2)
    assert factor_of([]) > factor_of([0.1])


def test_an_interval_holds_its_share_of_new_errors() -> None:
    rng = np.random.default_rng(7)
    held = []
    for _ in range(400):
        *seen, new = np.expm1(rng.normal(0, 0.2, 13)).tolist()
        factor = factor_of(seen)
        held.append(1 / factor <= 1 + new <= factor)
    assert 0.75 <= np.mean(held) <= 0.95


def test_an_epoch_counts_the_batches_of_all_devices() -> None:
    work = TrainingWork(samples=1000, epochs=3, batch_per_gpu=32)
    assert work.steps(1) == 3 * 32
    assert work.steps(4) == 3 * 8
    total = training_interval(around(0.5, 1.0), work, 4)
    assert total.value_s == 12.0
    assert cost_of(7200.0, 3.0) == 6.0
