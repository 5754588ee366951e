# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The analysis over rows whose interference is known by its formula."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from bench.gpu import planted
from bench.gpu.analysis import analyse

FIVE = ("GPT2D", "DLRM", "PRE", "DEC", "UNET")
TWO = ("DEC", "PRE")
SPREAD_PERCENT = 100 * planted.WINDOW_NOISE
BAR_PERCENT = 3.0 + SPREAD_PERCENT


@pytest.mark.slow
@pytest.mark.parametrize("knee", [planted.KNEE, 0.9])
def test_knee_and_slowdowns_are_recovered(
    draw: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knee: float
) -> None:
    monkeypatch.setattr(planted, "KNEE", knee)
    monkeypatch.setattr(planted, "contention", partial(planted.contention, knee=knee))
    analyse([draw("r1", FIVE)], tmp_path / "out", 0, names=["leave-pair-out"])
    body = json.loads((tmp_path / "out" / "gpu-analysis.json").read_text())
    assert body["knee"]["found"] == pytest.approx(knee, abs=0.05)
    pair_out = body["splits"]["leave-pair-out"]
    assert pair_out["prior + GP"]["mape"] <= BAR_PERCENT
    assert pair_out["prior, knee fitted"]["mape"] <= BAR_PERCENT
    assert pair_out["prior, knee fitted"]["mape_slow"] <= BAR_PERCENT
    assert pair_out["fair share"]["mape"] > 2 * BAR_PERCENT
    assert pair_out["utilisation sum"]["mape"] > 2 * BAR_PERCENT
    assert 0 < body["noise"]["cv_median_percent"] < 3 * SPREAD_PERCENT
    assert body["noise"]["drifted"] is False


def test_curves_alone_are_those_planted(draw: Callable[..., Path], tmp_path: Path) -> None:
    analyse([draw("r1", TWO)], tmp_path, 0, names=[])
    found = json.loads((tmp_path / "gpu-analysis.json").read_text())["curves"]
    for name in TWO:
        known = planted.DEMANDS[name]
        assert found[name]["scaled_ms"] == pytest.approx(
            known.solo_ms * (1 - known.fixed), rel=0.05
        )


@pytest.mark.slow
def test_the_same_rows_and_seed_give_the_same_bytes(
    draw: Callable[..., Path], tmp_path: Path
) -> None:
    rows = draw("r1", ("R50T", *TWO))
    text = [analyse([rows], tmp_path / name, 7) for name in ("one", "two")]
    one, two = ((tmp_path / name / "gpu-analysis.json").read_bytes() for name in ("one", "two"))
    assert one == two
    assert text[0] == text[1]


def test_serving_three_at_once_and_priorities_have_their_sections(
    draw: Callable[..., Path], tmp_path: Path
) -> None:
    path = draw("r2", ("R50I", "BERTI", "GPT2D", "PRE", "DEC", "R18T"))
    text = analyse([path], tmp_path, 0, names=[])
    body = json.loads((tmp_path / "gpu-analysis.json").read_text())
    assert body["triples"]["n"] > 0
    assert body["triples"]["prior_mape"] is not None
    assert body["queue_map"]
    assert body["share_lever"]
    assert body["no_gpu_was_used"] is True
    assert "no GPU was used" in text.splitlines()[0]
    assert all("says nothing of a GPU" in said for said in body["rules"].values())
    assert set(body["not_computed"]) == {"gpu-lets linear", "iGniter form", "GBDT"}
