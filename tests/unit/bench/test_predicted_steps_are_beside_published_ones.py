# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions are judged on steps that fitted nothing; a peer that is not there is said to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.plans import BARS, FITTED_ON, all_pairs, fitted, measure, published, table_errors
from bench.plans_calculon import Calculon, read_published
from bench.report import missed

PRINTED = """
Activations,|,none
megatron-22B,|,100.0%
End-to-end,|,full,,,,|,seqsel,,,,
Model,|,Profile,Calc,Delta,GiB,|,Profile,Calc,Delta,GiB,
megatron-22B,|,1.42,1.40,1.72%,48.15,|,1.1,1.14,-3.33%,52.08,
megatron-1T,|,94.42,90.08,4.60%,46.27,|,71.49,66.04,7.62%,59.15,
Ave,,3.65%
"""


def test_six_of_eight_steps_count_and_keep_the_bars() -> None:
    own = fitted(published(), FITTED_ON)
    assert len(own.errors) == 6
    assert not missed(
        {"ptdp_mean_error": own.mean, "ptdp_max_error": own.largest},
        {name: bar for name, bar in BARS.items() if name.startswith("ptdp")},
    )
    assert len(all_pairs(published())) == 28


def test_the_table_of_throughputs_is_predicted_better_than_by_a_constant() -> None:
    efficiency, ours, constant = table_errors()
    assert 0.5 < efficiency < 1
    assert 0 < ours <= constant / 2


def test_the_peers_times_are_read_from_its_table() -> None:
    assert read_published(PRINTED) == {"22B": (1.40, 1.14), "1T": (90.08, 66.04)}
    with pytest.raises(ValueError, match="no table"):
        read_published("Ave,,3.65%")


def test_a_peer_that_is_not_there_is_left_out_aloud(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures, _ = measure(None)
    assert figures["calculon_mean_error"] is None
    assert "left out; give its checkout" in capsys.readouterr().out
    with pytest.raises(ValueError, match="can't open file"):
        Calculon(folder=tmp_path, python="python3").published()
    figures, _ = measure(Calculon(folder=tmp_path, python=str(tmp_path / "absent")))
    assert figures["calculon_max_error"] is None
    assert "left out: " in capsys.readouterr().out
