# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""An uninstall lets the agents clean their nodes first; an install takes the nodes in again."""

from __future__ import annotations

import pytest

from chart.rendered import HOOK, Helm, Rendered, annotations
from ullage.app.main import run

HOOKS = {
    "ullage-retire": "pre-delete",
    "ullage-release": "post-delete",
    "ullage-serve": "post-install",
}


@pytest.mark.parametrize(("job", "moment"), HOOKS.items())
def test_each_hook_runs_at_its_moment(rendered: Rendered, job: str, moment: str) -> None:
    assert annotations(rendered.one("Job", job))[HOOK] == moment


@pytest.mark.parametrize("job", HOOKS)
def test_the_command_of_a_hook_exists(
    rendered: Rendered, job: str, capsys: pytest.CaptureFixture[str]
) -> None:
    container = rendered.container("Job", job)
    operator = rendered.container("Deployment", "ullage-operator")
    assert container["image"] == operator["image"]
    with pytest.raises(SystemExit) as ended:
        run([*container["args"], "--help"])
    assert ended.value.code == 0
    assert f"ullage-operator {container['name']}" in capsys.readouterr().out


def test_the_command_of_the_deployment_exists(rendered: Rendered) -> None:
    with pytest.raises(SystemExit) as ended:
        run([*rendered.container("Deployment", "ullage-operator")["args"], "--help"])
    assert ended.value.code == 0


def test_the_rights_of_a_hook_come_before_its_job(rendered: Rendered) -> None:
    weights = {
        body["kind"]: int(annotations(body)["helm.sh/hook-weight"]) for body in rendered.hooks()
    }
    job = weights.pop("Job")
    assert weights.keys() == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    assert all(weight < job for weight in weights.values())


def test_the_rights_of_the_hooks_exist_at_both_moments(rendered: Rendered) -> None:
    for body in rendered.hooks():
        if body["kind"] != "Job":
            assert set(annotations(body)[HOOK].split(",")) == set(HOOKS.values())


def test_hooks_leave_nothing_behind(rendered: Rendered) -> None:
    for body in rendered.hooks():
        policy = annotations(body)["helm.sh/hook-delete-policy"]
        assert set(policy.split(",")) == {"before-hook-creation", "hook-succeeded"}


def test_a_hook_ends_by_itself_before_it_is_ended(helm: Helm) -> None:
    bodies = helm.template("--set", "retireHook.timeoutSeconds=200")
    for job in HOOKS:
        args = bodies.container("Job", job)["args"]
        assert args[args.index("--timeout") + 1] == "200"
        assert bodies.one("Job", job)["spec"]["activeDeadlineSeconds"] > 200


def test_hooks_can_be_left_out(helm: Helm) -> None:
    bodies = helm.template("--set", "retireHook.enabled=false")
    assert not bodies.hooks()
    assert not bodies.all("Job")
