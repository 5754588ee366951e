# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a program reports of its epochs is what the operator reads of its termination message."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ullage.api.environment import MOST_REPORT_BYTES
from ullage.cluster.records.metrics import EpochValue, read_report
from ullage_run import tuning
from ullage_run.tuning import MOST_EPOCHS, Reporter


def read(file: Path) -> list[tuple[int, float | None]]:
    return [(one.epoch, one.value) for one in read_report(file.read_text())]


def test_values_are_read_as_they_were_reported(tmp_path: Path) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"")
    reporter = Reporter(str(file), "accuracy")
    assert reporter.report(1, 0.1 + 0.2)
    assert reporter.report(2, {"loss": 3.0, "accuracy": -1e-7})
    assert reporter.report(1, 0.5), "of an epoch that is done again the last value counts"
    assert read(file) == [(1, 0.5), (2, -1e-7)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_told_as_such(tmp_path: Path, value: float) -> None:
    file = tmp_path / "message"
    assert Reporter(str(file)).report(3, value)
    assert read(file) == [(3, None)]


def test_what_makes_no_sense_is_refused_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reporter = Reporter(str(tmp_path / "message"), "accuracy")
    assert not reporter.report(0, 1.0)
    assert not reporter.report(1, {"loss": 1.0})
    assert not reporter.report(1.5, 1.0)  # type: ignore[arg-type]
    assert not reporter.report(1, "much")  # type: ignore[arg-type]
    assert not (tmp_path / "message").exists()
    assert len(capsys.readouterr().err.splitlines()) == 4


def test_the_newest_epochs_of_a_long_training_fit(tmp_path: Path) -> None:
    file = tmp_path / "message"
    reporter = Reporter(str(file))
    for epoch in range(1, 300):
        reporter.report(epoch * 1000, -1.2345678901234567e-123)
    assert file.stat().st_size <= MOST_REPORT_BYTES
    found = read(file)
    assert len(found) == MOST_EPOCHS
    assert found[-1] == (299_000, -1.2345678901234567e-123)


def test_outside_a_trial_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Reporter(None).report(1, 1.0)
    assert tuning.epochs(7) == 7
    assert tuning.number("lr", 0.5) == 0.5
    monkeypatch.setenv("ULLAGE_TRIAL_EPOCHS", "3")
    monkeypatch.setenv("ULLAGE_PARAMETER_lr", "0.25")
    assert tuning.epochs(7) == 3
    assert tuning.number("lr", 0.5) == 0.25
    assert tuning.parameters()["lr"] == "0.25"


@given(st.text(max_size=300))
def test_any_message_is_read_and_none_raises(message: str) -> None:
    for text in (message, f"ullage-trial 1\n{message}"):
        for one in read_report(text):
            assert one == EpochValue(epoch=one.epoch, value=one.value)
            assert 1 <= one.epoch <= 999_999


def test_a_line_that_makes_no_sense_costs_no_other() -> None:
    message = "ullage-trial 1\n1 0.5\nepoch two\n-3 1\n4 0x10\n5 1e999\n6  0.25 \n6 0.75\n"
    found = [(one.epoch, one.value) for one in read_report(message)]
    assert found == [(1, 0.5), (4, None), (5, None), (6, 0.75)]
    assert read_report("something else\n1 0.5\n") == ()
