# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A simulation under a SchedulingPolicy file: its objective, tenants, rounds, or a clear error."""

from __future__ import annotations

from pathlib import Path

import pytest

from ullage.cli.policy_file import policy_rules
from ullage_simulate.comparison import ComparisonRequest, compare
from ullage_simulate.outcome import PolicyOutcome
from ullage_simulate.trace import JobTraceError

POLICY = """
apiVersion: ullage.dev/v1alpha1
kind: SchedulingPolicy
metadata:
  name: default
spec:
  objective: MaxMinFairness
  roundSeconds: 60
  tenants:
    - name: large
      weight: 3
    - name: small
      weight: 1
      inner: FIFO
"""
JOBS = """name,arrival_s,gang,duration_s,tenant
a,0,1,3600,large
b,0,1,3600,small
c,0,1,3600,small
"""


def _file(folder: Path, text: str, name: str = "policy.yaml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder / name)


def _run(folder: Path, policy: str, **asked: object) -> dict[str, PolicyOutcome]:
    how = {"cluster": "v100=1", "trace": _file(folder, JOBS, "jobs.csv"), **asked}
    found = compare(ComparisonRequest(rules=policy_rules(policy), **how), lambda *_: lambda _: None)  # type: ignore[arg-type]
    return {one.policy: one for one in found.outcomes}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["fast", "decide"])
def test_tenants_get_their_weights_and_serve_in_their_order(tmp_path: Path, mode: str) -> None:
    found = _run(tmp_path, _file(tmp_path, POLICY), mode=mode)["las"]
    ends = {job.name.split("-")[-1]: job.end_s / 3600 for job in found.jobs}
    # three quarters of the device are the large tenant's while it has work
    assert ends["a"] == pytest.approx(4 / 3, rel=0.1)
    assert ends["b"] < ends["c"]
    assert ends["c"] == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [", "policy.yaml"),
        ("- 1", "expected one SchedulingPolicy"),
        ("kind: Deployment", "expected one SchedulingPolicy"),
        (POLICY.replace("MaxMinFairness", "Best"), "spec.*objective"),
        (POLICY.replace("inner", "order"), r"spec.tenants\[1\].order: there is no such field"),
        (POLICY.replace("60", "-1"), "spec.*roundSeconds"),
        (POLICY.replace("weight: 3", "weight: many"), "spec.*tenants"),
        (POLICY.replace("tenants:", "tenants: 7\n  others:"), "spec.*tenants"),
        ("kind: SchedulingPolicy\nmetadata: 5\n", "policy.yaml"),
        ("kind: SchedulingPolicy\nmetadata: {name: default}\nspec: no\n", "spec"),
    ],
)
def test_what_is_no_policy_is_refused_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(JobTraceError, match=said):
        policy_rules(_file(tmp_path, text))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JobTraceError, match="nowhere"):
        policy_rules(str(tmp_path / "nowhere.yaml"))
