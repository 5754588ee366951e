# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import numpy as np
import pytest

from bench.adopt import bars
from bench.adopt_kinds import CASES, definition
from bench.adopt_latency import Paired
from bench.report import missed
from demo.first_install import PAGE, printed_commands, shares, unlabelled

PAIRS, PODS = 10, 200


def latencies(seed: int, factor: float = 1.0) -> Paired:
    """Log-normal latencies around 4 ms; with the policies they are longer by a factor."""
    random = np.random.default_rng(seed)
    drawn = random.lognormal(np.log(0.004), 0.3, (2, PAIRS, PODS))
    return Paired(without=drawn[0], installed=drawn[1] * factor)


def test_the_page_prints_an_install_that_ends_with_the_example() -> None:
    commands = printed_commands(PAGE.read_text("utf-8"))
    assert [line.split()[:2] for line in commands] == [
        ["helm", "install"],
        ["helm", "install"],
        ["kubectl", "apply"],
    ]


@pytest.mark.parametrize(
    "page", ["", "## Here\ntext\n", "## Here\n```yaml\na: b\n```\n## There\n```sh\nls\n```\n"]
)
def test_a_page_without_commands_is_an_error(page: str) -> None:
    with pytest.raises(ValueError, match="Here"):
        printed_commands(page, "## Here")


def test_commands_are_those_of_their_section() -> None:
    page = "# A\n```sh\nno\n```\n## Here\n```\nno\n```\n```sh\none\n\ntwo\n```\n## There\n"
    assert printed_commands(page, "## Here") == ("one", "two")


def test_the_example_ran_before_without_a_key_of_ours() -> None:
    assert {body["kind"] for body in unlabelled()} == {"Deployment", "Job"}
    assert "ullage.dev" not in json.dumps(unlabelled())


@pytest.mark.slow
def test_equal_latencies_are_within_their_noise() -> None:
    outside = 0
    for seed in range(20):
        paired = latencies(seed)
        low, high = paired.noise(draws=400)
        outside += not low <= paired.ratio() <= high
    assert outside <= 4


def test_latencies_that_grew_are_beyond_the_noise() -> None:
    paired = latencies(1, factor=1.5)
    low, high = paired.interval(draws=400)
    assert low <= paired.ratio() <= high
    assert low > 1.3
    assert paired.ratio() > paired.noise(draws=400)[1]


def test_drift_that_weighs_on_both_sides_is_not_taken_for_a_difference() -> None:
    paired = latencies(2)
    drift = np.linspace(1, 5, PAIRS)[:, None]
    drifted = Paired(without=paired.without * drift, installed=paired.installed * drift)
    low, high = drifted.noise(draws=400)
    assert low <= drifted.ratio() <= high


def test_every_bar_can_be_missed() -> None:
    good = {
        "kinds": 8, "commands": 3, "minutes_to_first_share": 3.0, "unlabelled_p99_ratio": 1.05,
    }  # fmt: skip
    bad = {
        "kinds": 7, "commands": 4, "minutes_to_first_share": 3.1, "unlabelled_p99_ratio": 1.2,
    }  # fmt: skip
    assert missed(good, bars(1.1)) == []
    assert missed(bad, bars(1.1)) == list(bad)


def test_every_kind_is_one_case_whose_pods_ask_for_a_share() -> None:
    kinds = [case.kind for case in CASES]
    assert len(set(kinds)) == len(kinds)
    for case in CASES:
        made = json.dumps(case.bodies("a-uid"))
        assert "ullage.dev/share" in made
        assert f'"app": "{case.app}"' in made
        assert ('"uid": "a-uid"' in made) == bool(case.group)
        if case.group:
            assert definition(case.kind, case.group)["spec"]["names"]["kind"] == case.kind


@pytest.mark.parametrize(
    ("phase", "enforced", "expected"),
    [("Running", "True", True), ("Running", "False", False), ("Pending", "True", False)],
)
def test_a_pod_shares_when_it_runs_and_its_agent_says_so(
    phase: str, enforced: str, expected: bool
) -> None:
    conditions = [{"type": "ullage.dev/Enforced", "status": enforced}]
    assert shares({"status": {"phase": phase, "conditions": conditions}}) is expected
