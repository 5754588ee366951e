# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage doctor`` tells each check; old, wild or missing words are no health."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from ullage.api.times import rfc3339
from ullage.cli import doctor
from ullage.cli.main import app

NOW = 1_800_000_000.0


def a_node(name: str = "node-a", age: float = 10.0, **status: object) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "status": {"heartbeat": rfc3339(NOW - age), **status},
    }


def check(name: str, state: str, **more: str) -> dict[str, str]:
    return {"name": name, "state": state, **more}


def states(found: doctor.Examined) -> dict[str, str]:
    return {one.name: one.state.value for one in found.checks}


def text(*found: doctor.Examined) -> str:
    console = Console(width=240, force_terminal=False)
    with console.capture() as capture:
        console.print(doctor.table(found))
    return capture.get()


def test_each_check_has_a_line_with_what_mends_it() -> None:
    found = doctor.read(
        a_node(
            checks=[
                check("Driver", "Ok", message="580.65.06 (NVML)"),
                check("HostProcesses", "Failed", message="counts otherwise", remedy="hostPID"),
                check("MixedUsers", "Unconfirmed", message="not seen", remedy="run two"),
            ]
        ),
        NOW,
    )
    assert found.failed
    shown = text(found)
    for line in (
        "node-a  Agent          ok           reports",
        "node-a  Driver         ok           580.65.06 (NVML)",
        "node-a  HostProcesses  failed       counts otherwise  hostPID",
        "node-a  MixedUsers     unconfirmed  not seen          run two",
    ):
        assert " ".join(line.split()) in " ".join(shown.split())


def test_what_is_unconfirmed_is_no_failure() -> None:
    assert not doctor.read(a_node(checks=[check("MixedUsers", "Unconfirmed")]), NOW).failed


@pytest.mark.parametrize("node", [a_node(age=600.0), {"metadata": {"name": "node-a"}}])
def test_an_agent_that_is_silent_has_failed_whatever_it_said(node: dict[str, Any]) -> None:
    found = doctor.read(node, NOW)
    assert states(found)["Agent"] == "Failed"
    assert found.failed


def test_conditions_that_say_trouble_are_failures() -> None:
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Registered", "message": ""},
        {"type": "Sharing", "status": "False", "reason": "MPSNotReady", "message": "GPU-1: down"},
    ]
    found = doctor.read(a_node(conditions=conditions), NOW)
    assert states(found) == {"Agent": "Ok", "Sharing": "Failed"}
    assert "MPSNotReady: GPU-1: down" in text(found)


@pytest.mark.parametrize(
    "status",
    [
        {"checks": 1},
        {"checks": [1]},
        {"checks": [{"state": "Ok"}]},
        {"checks": [check("A", "Fine")]},
        {"heartbeat": "yesterday"},
        {"conditions": [{"type": 1}]},
    ],
)
def test_a_status_that_cannot_be_read_is_a_failure_of_its_own_node(
    status: dict[str, object],
) -> None:
    found = (
        doctor.read(a_node(**status), NOW)
        if "heartbeat" not in status
        else doctor.read({"metadata": {"name": "node-a"}, "status": status}, NOW)
    )
    assert found.failed
    assert states(found).keys() == {"Status"}


def test_markup_in_a_message_is_shown_and_not_obeyed() -> None:
    found = doctor.read(a_node(checks=[check("A", "Ok", message="[red]x[/red] [/]")]), NOW)
    assert "[red]x[/red] [/]" in text(found)


def test_the_command_is_there_and_explains_itself() -> None:
    said = CliRunner().invoke(app, ["doctor", "--help"], env={"COLUMNS": "200"})
    assert said.exit_code == 0
    assert "how to fix it" in said.output
