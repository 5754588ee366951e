# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""On a real cluster: a suggestion service chooses trials, by a token with the example's rights."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import yaml

from e2e.stack import BUSY_MACHINE, Json, Stack, busy_template, eventually, share
from fakes.katib_service import katib_service

EXAMPLE = Path("examples/15-katib.yaml")
NAME = "digits-katib"
RIGHTS = ("ServiceAccount", "Role", "RoleBinding")
PROGRAM = """
from ullage_run import tuning
tuning.report(tuning.epochs(1), 1 - abs(tuning.number("rate", 0.1) - 0.3))
"""


def search(namespace: str) -> Json:
    template = busy_template(container={"command": ["python3", "-c", PROGRAM]})
    return {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "TuningJob",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "algorithm": {"ref": "External", "maxEpochs": 1},
            "objective": {"metric": "score", "goal": "Maximize"},
            "searchSpace": [{"name": "rate", "type": "Float", "min": 0, "max": 1}],
            "trials": 5,
            "parallelism": 2,
            "trialTemplate": {"template": template, "gpu": share(20)},
        },
    }


def kubeconfig(stack: Stack, namespace: str, folder: Path) -> Path:
    """Credentials of the example's account, which may get and patch one TuningJob."""
    parts = [one for one in yaml.safe_load_all(EXAMPLE.read_text()) if one["kind"] in RIGHTS]
    assert len(parts) == len(RIGHTS)
    for part in parts:
        part["metadata"]["namespace"] = namespace
        for subject in part.get("subjects", ()):
            subject["namespace"] = namespace
    stack.apply(*parts)
    token = stack.cluster.kubectl("create", "token", NAME, "--namespace", namespace).stdout.strip()
    own = yaml.safe_load(stack.cluster.kubeconfig.read_text(encoding="utf-8"))
    own["users"] = [{"name": one["name"], "user": {"token": token}} for one in own["users"]]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(own), encoding="utf-8")
    return path


async def test_it_suggests_to_the_end_and_is_told_results(
    stack: Stack, namespace: str, tmp_path: Path
) -> None:
    stack.apply(search(namespace))
    config = kubeconfig(stack, namespace, tmp_path)
    async with katib_service() as service:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ullage_katib", NAME, "--namespace", namespace,
            "--kubeconfig", str(config), "--service", service.address, "--algorithm", "random",
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(240 * BUSY_MACHINE):
            _, said = await program.communicate()
        assert program.returncode == 0, said.decode()[-2000:]
        assert service.values, "results came back to it"

    def ended() -> Json | None:
        status = stack.status("tuningjob", NAME, namespace)
        return status if status.get("phase") in ("Succeeded", "Failed") else None

    status = await asyncio.to_thread(eventually, ended, within_s=90, what="the search ends")
    assert status["phase"] == "Succeeded"
    assert [one["trial"] for one in sorted(status["results"], key=lambda one: one["trial"])] == [
        *range(5)
    ]
    told = {f"{NAME}-t{one['trial']:04d}": float(one["value"]) for one in status["results"]}
    assert service.values.items() <= told.items()
    stack.books_balance()
