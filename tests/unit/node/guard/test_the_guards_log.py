# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re

import pytest

from ullage.process.environment import LogLevel
from ullage_node.guard import log
from ullage_node.guard.log import Log, configure_log

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


@pytest.fixture(autouse=True)
def _level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_least", LogLevel.INFO)


def test_a_line_is_one_json_object_as_the_agents(capsys: pytest.CaptureFixture[str]) -> None:
    Log("part").warning("time is up", slices=["a", "b"], place=MOMENT)
    (line,) = capsys.readouterr().err.splitlines()
    said = json.loads(line)
    assert list(said) == sorted(said)
    assert MOMENT.fullmatch(said.pop("timestamp"))
    assert said == {
        "event": "time is up",
        "level": "warning",
        "logger": "part",
        "place": repr(MOMENT),
        "slices": ["a", "b"],
    }


def test_what_is_below_the_level_is_not_said(capsys: pytest.CaptureFixture[str]) -> None:
    configure_log(LogLevel.WARNING)
    log = Log("part")
    log.info("frozen")
    log.warning("time is up")
    log.error("not thawed")
    said = [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()]
    assert said == ["time is up", "not thawed"]


def test_a_log_that_no_one_takes_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    monkeypatch.setattr("sys.stderr", Full())
    Log("part").error("not thawed")
