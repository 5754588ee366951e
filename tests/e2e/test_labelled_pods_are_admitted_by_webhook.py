# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The webhook prepares labelled pods as the policy does, and stands in the way of none.

The installed release is switched to the webhook for these tests, and back.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from admitted_pods import CASES, SHARE, generated, new_pod, parts
from demo.install import CHARTS, NAMESPACE, RELEASE, chart_values
from e2e.stack import Json, Stack, eventually, printed, tls_secret
from e2e.test_existing_workloads_share_devices import run_under_shares, template, workload
from ullage.cli.main import app

WEBHOOK = "ullage-webhook"
CALLS = re.compile(
    r"^apiserver_admission_webhook_request_total\{[^}]*adoption\.ullage\.dev[^}]*\} ([0-9.e+]+)$",
    re.MULTILINE,
)
PODS = 200
MADE_ANEW = ("uid", "creationTimestamp", "managedFields", "resourceVersion", "generation")


def bodies() -> list[Json]:
    """Pods of the table, then pods at random; without a volume whose name is random."""
    found = [copy.deepcopy(case.pod) for case in CASES.values()] + list(generated(PODS, seed=11))
    for body in found:
        body["spec"]["automountServiceAccountToken"] = False
    return found


def rehearsed(stack: Stack, pods: Sequence[Json]) -> list[Json]:
    """The pods as the API server would store them."""
    items = {"apiVersion": "v1", "kind": "List", "items": list(pods)}
    done = stack.cluster.kubectl(
        "create", "--filename", "-", "--dry-run=server", "--output", "json", stdin=json.dumps(items)
    )
    found = list(printed(done.stdout))
    assert len(found) == len(pods)
    for pod in found:
        for name in MADE_ANEW:
            pod["metadata"].pop(name, None)
        for condition in pod.get("status", {}).get("conditions", []):
            condition.pop("lastTransitionTime", None)
    return found


def prepares(stack: Stack) -> bool:
    (pod,) = rehearsed(stack, [new_pod(SHARE)])
    return "ullage.dev/adopted" in parts(pod).annotations


def calls(stack: Stack) -> float:
    """Calls of our webhook that one API server has made so far."""
    text = stack.cluster.kubectl("get", "--raw", "/metrics").stdout
    return sum(float(value) for value in CALLS.findall(text))


@dataclass(frozen=True, slots=True)
class Switched:
    """The release with the webhook, and what the policy made of the pods before."""

    stack: Stack
    by_policy: list[Json]


@pytest.fixture(scope="module")
def switched(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Switched]:
    eventually(lambda: prepares(stack), within_s=60, what="the policy prepares pods")
    by_policy = rehearsed(stack, bodies())
    folder = tmp_path_factory.mktemp("certificate")
    with tls_secret(stack, WEBHOOK, folder):
        _switch(stack, folder)
        yield Switched(stack, by_policy)
    eventually(lambda: prepares(stack), within_s=60, what="the policy prepares pods again")


def _switch(stack: Stack, folder: Path) -> None:
    webhook = {"tlsSecret": WEBHOOK, "caBundle": (folder / "tls.crt").read_text()}
    values = {"admissionPolicy": {"adoption": {"mode": "Webhook", "webhook": webhook}}}
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    stack.cluster.helm(
        "upgrade", RELEASE, str(CHARTS / "ullage"), "--namespace", NAMESPACE,
        "--wait", "--timeout", "15m", *chart_values(), "--values", str(path),
    )  # fmt: skip
    assert not stack.list("mutatingadmissionpolicies")

    def asked() -> bool:
        before = calls(stack)
        return prepares(stack) and calls(stack) > before

    eventually(asked, within_s=60, what="the webhook prepares pods")


def test_the_webhook_prepares_each_pod_as_the_policy_did(switched: Switched) -> None:
    before = calls(switched.stack)
    by_webhook = rehearsed(switched.stack, bodies())
    for mine, theirs in zip(by_webhook, switched.by_policy, strict=True):
        assert mine == theirs
    for found, case in zip(by_webhook, CASES.values(), strict=False):
        assert parts(found) == case.after
    labelled = [pod for pod in by_webhook if "ullage.dev/adopted" in parts(pod).annotations]
    assert len(labelled) > PODS / 2
    assert calls(switched.stack) - before >= len(labelled)


def test_pods_without_our_labels_are_never_sent_to_it(switched: Switched) -> None:
    plain = [pod for pod in bodies() if not {*SHARE, "ullage.dev/devices"} & {*parts(pod).labels}]
    assert len(plain) > PODS / 10
    before = calls(switched.stack)
    for found, pod in zip(rehearsed(switched.stack, plain), plain, strict=True):
        assert parts(found) == parts(pod)
    assert calls(switched.stack) == before


def test_a_wrong_value_is_refused_as_ever(switched: Switched) -> None:
    for labels in ({"ullage.dev/share": "0"}, {"ullage.dev/share": "1", "ullage.dev/devices": "1"}):
        done = switched.stack.cluster.kubectl(
            "create", "--filename", "-", "--dry-run=server",
            stdin=json.dumps(new_pod(labels)), check=False,
        )  # fmt: skip
        assert done.returncode != 0
        assert "ullage.dev/share" in done.stderr


def test_a_deployment_runs_under_its_shares(switched: Switched, namespace: str) -> None:
    stack = switched.stack
    stack.apply(workload("Deployment", "web", namespace, template("web"), replicas=2))
    run_under_shares(stack, namespace, "web", 2)
    stack.books_balance()


def test_the_doctor_says_that_it_answers(switched: Switched) -> None:
    kubeconfig = str(switched.stack.cluster.kubeconfig)
    done = CliRunner().invoke(app, ["--kubeconfig", kubeconfig, "doctor"], env={"COLUMNS": "300"})
    assert "the webhook is installed; it prepares a labelled pod" in " ".join(done.output.split())


def test_while_it_is_down_pods_are_created_and_the_labelled_are_told(
    switched: Switched, namespace: str
) -> None:
    stack = switched.stack
    scale = ("scale", f"deployment/{WEBHOOK}", "--namespace", NAMESPACE)
    stack.cluster.kubectl(*scale, "--replicas=0")
    try:
        # one that ends may still answer who is connected
        eventually(
            lambda: not stack.list("pods", NAMESPACE, "app.kubernetes.io/component=webhook"),
            within_s=60,
            what="the webhook's pods are gone",
        )
        eventually(lambda: not prepares(stack), within_s=60, what="the webhook is down")
        stack.apply(
            workload("Pod", "plain", namespace, template("plain", seconds=60)),
            workload("Pod", "other", namespace, {**template("other", seconds=60), "metadata": {}}),
        )
        plain = stack.get("pods", "plain", namespace)
        assert plain is not None
        assert not parts(plain).slots
        assert not parts(plain).gates

        def told() -> list[Json]:
            events = stack.events(namespace, "plain")
            return [one for one in events if one["reason"] == "NotAdopted"]

        eventually(told, within_s=60, what="the pod is told")
        assert not [
            one for one in stack.events(namespace, "other") if one["reason"] == "NotAdopted"
        ]
    finally:
        stack.cluster.kubectl(*scale, "--replicas=2")
    eventually(lambda: prepares(stack), within_s=60, what="the webhook prepares pods again")
