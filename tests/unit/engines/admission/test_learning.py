# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Rows in, tables out: what is forecast, refused, kept over a restart."""

from __future__ import annotations

import itertools
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

from ullage.app.model_summary import digest, slim
from ullage.engines.admission.calibration import Band
from ullage.engines.admission.colocations import bounded
from ullage.engines.admission.judging import blocks_by
from ullage.engines.admission.learning import learn
from ullage.engines.admission.model import WIDE_SD, Cells, LearnedModel, Models
from ullage.engines.admission.records import (
    ClassProfile,
    Group,
    Partner,
    Row,
    Rung,
    ShareCurve,
    Tenant,
)

CLASSES = tuple(f"c{number}" for number in range(12))
SUFFERS = {one: 0.05 * number for number, one in enumerate(CLASSES)}
INFLICTS = {one: 0.08 * (number % 4) for number, one in enumerate(CLASSES)}


def family(workload_class: str) -> str:
    return f"f{int(workload_class[1:]) // 3}"


def profile(workload_class: str) -> ClassProfile:
    return ClassProfile(
        workload_class=workload_class,
        family=family(workload_class),
        curve=ShareCurve(fixed_s=0.0, scaled_s=0.1 + 0.01 * int(workload_class[1:])),
    )


PROFILES = {one: profile(one) for one in CLASSES}


def truth(victim: str, aggressor: str) -> float:
    return math.exp(0.1 + SUFFERS[victim] + INFLICTS[aggressor])


def row(number: int, victim: str, aggressor: str, **changes: object) -> Row:
    one = Row(
        id=f"{number:04d}.{victim}",
        workload_class=victim,
        family=family(victim),
        accelerator="v100",
        percent=100,
        partners=(Partner(workload_class=aggressor, percent=100),),
        step_s=0.1,
        slowdown=truth(victim, aggressor),
        at_s=60.0 * number,
        max_slowdown=2.0,
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def world() -> list[Row]:
    rows = []
    for number, (left, right) in enumerate(itertools.combinations(CLASSES, 2)):
        if (left, right) != ("c1", "c5"):
            rows += [row(number, left, right), row(number, right, left)]
    return rows


@pytest.fixture(scope="module")
def model() -> LearnedModel:
    return learn(
        world(), PROFILES, accelerator="v100", previous=None, refit=True, wanted=CLASSES[:2]
    )


def tenant(workload_class: str, **changes: object) -> Tenant:
    one = Tenant(
        name=workload_class, percent=100, profile=profile(workload_class), max_slowdown=2.0
    )
    return replace(one, **changes)  # type: ignore[arg-type]


def test_an_unseen_pair_of_known_classes_is_close_to_the_truth(model: LearnedModel) -> None:
    told = model.forecast([tenant("c1"), tenant("c5")])
    assert told.rung in (Rung.BIAS, Rung.GP)
    for mean, pair in zip(told.mean, (("c1", "c5"), ("c5", "c1")), strict=True):
        assert math.exp(mean) == pytest.approx(truth(*pair), rel=0.05)
    assert all(sd > 0 for sd in told.sd)


def test_groups_are_as_new_as_the_classes(model: LearnedModel) -> None:
    unknown = ClassProfile(workload_class="x", family="f1")
    stranger = ClassProfile(workload_class="y", family="zz")
    pairs = {
        ("c0", "c1"): Group.SEEN_PAIR,
        ("c1", "c5"): Group.KNOWN,
    }
    for (left, right), group in pairs.items():
        assert model.forecast([tenant(left), tenant(right)]).group is group
    for other, group in ((unknown, Group.NEW_CONFIG), (stranger, Group.NEW_FAMILY)):
        assert model.forecast([tenant("c1"), tenant("c1", profile=other)]).group is group
    assert model.forecast([tenant("c0"), tenant("c1"), tenant("c2")]).group is Group.MANY


def test_an_unknown_class_is_answered_one_rung_down(model: LearnedModel) -> None:
    told = model.forecast(
        [tenant("c1"), tenant("c1", profile=ClassProfile(workload_class="x", family="f1"))]
    )
    assert told.rung is not Rung.GP
    assert all(math.isfinite(one) for one in (*told.mean, *told.sd))


def test_three_tenants_are_sums_of_pairs_and_of_spreads(model: LearnedModel) -> None:
    three = model.forecast([tenant("c4"), tenant("c1"), tenant("c2")])
    two = [model.forecast([tenant("c4"), tenant(one)]) for one in ("c1", "c2")]
    assert three.sd[0] > max(one.sd[0] for one in two)
    assert three.mean[0] > max(one.mean[0] for one in two)


def test_alone_at_the_whole_device_nothing_is_lost(model: LearnedModel) -> None:
    assert model.forecast([tenant("c4")]).mean == (0.0,)
    half = model.forecast([tenant("c4", percent=50)])
    assert math.exp(half.mean[0]) == pytest.approx(2.0)


def test_no_model_is_the_utilisation_sum_with_a_wide_spread() -> None:
    told = Models().forecast("h100", [tenant("c1", profile=None), tenant("c2", profile=None)])
    assert told.group is Group.NEW_FAMILY
    assert told.rung is Rung.UTILISATION_SUM
    assert told.mean == pytest.approx((math.log(2),) * 2)
    assert told.sd == (WIDE_SD,) * 2


def test_a_restart_rebuilds_the_same_model_without_fitting(model: LearnedModel) -> None:
    kept = slim(model)
    again = learn(
        world(), PROFILES, accelerator="v100", previous=kept, refit=False, wanted=CLASSES[:2]
    )
    assert again.hyper == model.hyper
    assert again.rungs == model.rungs
    assert again.thresholds == model.thresholds
    assert np.array_equal(again.cells.mean, model.cells.mean, equal_nan=True)
    assert again.version == model.version + 1


def test_the_same_rows_give_the_same_bytes(model: LearnedModel) -> None:
    again = learn(
        world()[::-1], PROFILES, accelerator="v100", previous=None, refit=True, wanted=CLASSES[:2]
    )
    assert pickle.dumps(again.cells) == pickle.dumps(model.cells)
    assert digest(again) == digest(model)


def test_thresholds_exist_for_every_group_and_band(model: LearnedModel) -> None:
    assert set(model.thresholds) == set(itertools.product(Group, Band))
    assert {one.group for one in model.scored} >= {Group.KNOWN, Group.NEW_CONFIG, Group.NEW_FAMILY}


def test_a_pickle_is_the_model(model: LearnedModel) -> None:
    again = pickle.loads(pickle.dumps(model))
    mixture = [tenant("c1"), tenant("c5")]
    assert again.forecast(mixture) == model.forecast(mixture)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, 0.0])
def test_a_slowdown_that_is_no_number_is_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match=r"row 0000\.c0 .*slowdown"):
        learn(
            [row(0, "c0", "c1", slowdown=value)],
            PROFILES,
            accelerator="v100",
            previous=None,
            refit=True,
            wanted=(),
        )


def test_rows_of_another_accelerator_teach_nothing() -> None:
    rows = [replace(one, accelerator="k80") for one in world()]
    empty = learn(rows, PROFILES, accelerator="v100", previous=None, refit=True, wanted=())
    assert empty.rows == 0
    assert empty.forecast([tenant("c1"), tenant("c5")]).group is Group.NEW_FAMILY


def test_the_newest_row_of_every_pair_outlives_the_bound() -> None:
    rows = [row(number, "c0", "c1") for number in range(20)] + [row(0, "c2", "c3")]
    kept = bounded(rows, limit=5)
    assert {one.workload_class for one in kept} == {"c0", "c2"}
    assert max(one.at_s for one in kept) == 60.0 * 19
    assert len(kept) == 5


def by_hand(model: LearnedModel, mixture: list[Tenant], me: int) -> tuple[float, float]:
    """Sum over the others of single look-ups, each trimmed."""
    trim = model.trims[Group.MANY, Rung.GP]
    base_log = model.forecast([mixture[me]]).mean[0] + math.log(float(len(mixture)))
    mean = spread = 0.0
    for place, other in enumerate(mixture):
        if place != me:
            means, sds = model.cells.among(
                [(mixture[me].name, mixture[me].percent), (other.name, other.percent)]
            )
            mean += trim.centre + trim.slope * (float(means[0, 1]) - trim.centre)
            spread += trim.spread * float(sds[0, 1])
    return base_log + mean, spread


def test_one_look_at_the_table_equals_many_single_ones(model: LearnedModel) -> None:
    decided = replace(model, rungs={**model.rungs, Group.MANY: Rung.GP})
    mixture = [tenant(one) for one in ("c4", "c1", "c2", "c2")]
    told = decided.forecast(mixture)
    assert told.rung is Rung.GP
    for me in range(4):
        mean, spread = by_hand(decided, mixture, me)
        assert told.mean[me] == pytest.approx(mean, abs=1e-6)
        assert told.sd[me] == pytest.approx(spread, rel=1e-6)


def test_a_missing_cell_lowers_only_those_who_need_it(model: LearnedModel) -> None:
    mean = model.cells.mean.copy()
    mean[model.cells.index["c4"], :, model.cells.index["c1"], :] = np.nan
    holed = replace(
        model,
        cells=replace(model.cells, mean=mean),
        rungs={**model.rungs, Group.MANY: Rung.GP},
    )
    full = replace(model, rungs=holed.rungs)
    plain = replace(model, rungs={**model.rungs, Group.MANY: Rung.BIAS})
    mixture = [tenant(one) for one in ("c4", "c1", "c2")]
    told = holed.forecast(mixture)
    assert told.rung is Rung.BIAS
    assert told.mean[0] == plain.forecast(mixture).mean[0]
    assert told.mean[1:] == full.forecast(mixture).mean[1:]


def lesson(rows: list[Row], previous: LearnedModel) -> LearnedModel:
    return learn(rows, PROFILES, accelerator="v100", previous=previous, refit=False, wanted=CLASSES)


def block(model: LearnedModel, one: str, other: str, table: str) -> np.ndarray:
    """All shares of a pair of classes."""
    cells: np.ndarray = getattr(model.cells, table)
    return cells[model.cells.index[one], :, model.cells.index[other]]


def test_an_update_equals_learning_from_scratch_where_something_changed(
    model: LearnedModel,
) -> None:
    before = lesson(world(), model)
    more = [*world(), row(900, "c1", "c5", slowdown=3.0), row(901, "c5", "c1", slowdown=2.0)]
    updated, fresh = lesson(more, before), lesson(more, replace(before, cells=Cells()))
    assert updated.hyper == fresh.hyper
    assert updated.bias is not None
    assert fresh.bias is not None
    assert np.array_equal(updated.bias.sensitivity, fresh.bias.sensitivity)
    assert updated.cells.index == fresh.cells.index
    for one, other in itertools.product(CLASSES, repeat=2):
        source = before if {one, other}.isdisjoint({"c1", "c5"}) else fresh
        for table in ("mean", "sd"):
            told, known = (block(part, one, other, table) for part in (updated, source))
            assert np.allclose(told, known, rtol=1e-3, atol=1e-5)
    place = before.cells.index["c1"], 9, before.cells.index["c5"], 9
    assert updated.cells.mean[place] > before.cells.mean[place] + 0.1


def test_a_meeting_is_judged_in_the_band_of_its_tightest_objective() -> None:
    asked = {True: 1.25, False: 9.0}
    rows = [replace(one, max_slowdown=asked[one.id.endswith("c0")]) for one in world()]
    found = learn(rows, PROFILES, accelerator="v100", previous=None, refit=True, wanted=())
    bands = {one.pair: one.band for one in found.scored if one.pair is not None}
    assert bands
    for pair, band in bands.items():
        assert band is (Band.TIGHT if "c0" in pair else Band.WIDE)


def test_rows_of_one_meeting_are_left_out_together() -> None:
    blocks = blocks_by(np.array([3, 1, 3, 2]))
    assert [block.tolist() for block in blocks] == [[1], [3], [0, 2]]


def test_a_new_class_moves_every_feature_so_every_cell_is_asked_again(model: LearnedModel) -> None:
    before = lesson(world(), model)
    profiles = {**PROFILES, "new": ClassProfile(workload_class="new", family="f0", batch=2.0)}
    profiles["new"] = replace(profiles["new"], curve=ShareCurve(fixed_s=0.0, scaled_s=9.0))
    found = learn(
        world(), profiles, accelerator="v100", previous=before, refit=False, wanted=CLASSES
    )
    assert not set(found.marks.items()) & set(before.marks.items())
