# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl apply`` prints what the operator knows to be wrong, and takes the object in any case.

The installed release gets a certificate for these tests, and loses it again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from demo.install import CHARTS, NAMESPACE, RELEASE, chart_values
from e2e.stack import Json, Stack, busy_template, eventually, share, tls_secret, training_job

NAME = "ullage-admission"
OPERATOR = "ullage-operator"
TYPO = "no node and no pool has accelerator typo; there are emulated"
ASK = """
import ssl, sys, urllib.request
asked = urllib.request.Request("https://127.0.0.1:9443/advise", sys.argv[1].encode())
print(urllib.request.urlopen(asked, context=ssl._create_unverified_context()).read().decode())
"""
CALLS = re.compile(
    r'^apiserver_admission_webhook_request_total\{[^}]*name="advice\.ullage\.dev"[^}]*\} '
    r"([0-9.e+]+)$",
    re.MULTILINE,
)


def applied(stack: Stack, body: Json, *words: str) -> str:
    """Warnings of ``kubectl apply``, which succeeds."""
    done = stack.cluster.kubectl("apply", *words, "--filename", "-", stdin=json.dumps(body))
    return done.stderr


def rehearsed(stack: Stack, namespace: str) -> str:
    """Of a new object: one that is there and does not change is not asked about."""
    job = training_job("rehearsed", namespace, accelerators=["typo"])
    return applied(stack, job, "--dry-run=server")


def answered_by(stack: Stack, pod: str, namespace: str) -> list[str]:
    """Warnings of one replica, leading or not, asked past the Service."""
    resource = {"group": "ullage.dev", "version": "v1alpha1", "resource": "trainingjobs"}
    job = training_job("typo", namespace, accelerators=["typo"])
    request = {"uid": "u", "resource": resource, "operation": "CREATE", "object": job}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    done = stack.cluster.kubectl(
        "exec", pod, "--namespace", NAMESPACE, "--",
        "/app/.venv/bin/python3", "-c", ASK, json.dumps(review),
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout)["response"].get("warnings", [])
    return found


def calls(stack: Stack) -> float:
    text = stack.cluster.kubectl("get", "--raw", "/metrics").stdout
    return sum(float(value) for value in CALLS.findall(text))


@pytest.fixture(scope="module")
def warning(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("certificate")
    with tls_secret(stack, NAME, folder):
        _switch_on(stack, folder)
        yield stack


def _switch_on(stack: Stack, folder: Path) -> None:
    values = {"admission": {"tlsSecret": NAME, "caBundle": (folder / "tls.crt").read_text()}}
    path = folder / "values.yaml"
    path.write_text(yaml.safe_dump(values))
    stack.cluster.helm(
        "upgrade", RELEASE, str(CHARTS / "ullage"), "--namespace", NAMESPACE,
        "--wait", "--timeout", "15m", *chart_values(), "--values", str(path),
    )  # fmt: skip

    def warns() -> bool:
        return TYPO in rehearsed(stack, "default")

    eventually(warns, within_s=60, what="the operator warns")


def test_a_typo_is_named_at_apply_by_each_replica(warning: Stack, namespace: str) -> None:
    assert f"Warning: spec.accelerators: {TYPO}" in rehearsed(warning, namespace)
    pods = warning.list("pods", NAMESPACE, "app.kubernetes.io/component=operator")
    replicas = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
    assert len(replicas) == 2
    for pod in replicas:
        eventually(
            lambda name=pod["metadata"]["name"]: answered_by(warning, name, namespace) == [
                f"spec.accelerators: {TYPO}"
            ],
            within_s=60,
            what=f"{pod['metadata']['name']} answers",
        )  # fmt: skip


def test_memory_that_no_device_has_is_named_and_the_object_is_taken(
    warning: Stack, namespace: str
) -> None:
    job = training_job("large", namespace, gpu=share(30, memory={"limit": "96Gi"}), suspend=True)
    assert "Warning: spec.gpu.memory: no suitable device here has 96 GiB" in applied(warning, job)
    assert warning.get("trainingjobs", "large", namespace) is not None
    pool = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "CapacityPool",
        "metadata": {"name": "typo"},
        "spec": {
            "type": "t", "zone": "z", "capacityType": "Spot", "accelerator": "typo",
            "nodeSelector": {"pool": "typo"},
            "priceSource": {"type": "Static", "static": {"pricePerHour": "1"}},
        },
    }  # fmt: skip
    said = applied(warning, pool, "--dry-run=server")
    assert "Warning: spec.accelerator: no node and no DeviceProfile has accelerator typo" in said


def test_what_changes_no_spec_asks_no_one(warning: Stack, namespace: str) -> None:
    """Nor do statuses and finalizers that the operator writes."""
    warning.apply(training_job("quick", namespace, busy_template(seconds=1)))
    before = calls(warning)
    warning.job_reaches("quick", namespace, "Succeeded")
    warning.cluster.kubectl(
        "label", "trainingjob", "quick", "--namespace", namespace, "example.org/seen=yes"
    )
    assert calls(warning) == before
    suspended = training_job("quick", namespace, busy_template(seconds=1), suspend=True)
    applied(warning, suspended, "--dry-run=server")
    assert calls(warning) > before


def test_while_no_replica_answers_objects_are_taken_without_a_word(
    warning: Stack, namespace: str
) -> None:
    scale = ("scale", f"deployment/{OPERATOR}", "--namespace", NAMESPACE)
    warning.cluster.kubectl(*scale, "--replicas=0")
    try:
        eventually(
            lambda: TYPO not in rehearsed(warning, namespace), within_s=60, what="no one answers"
        )
        job = training_job("typo", namespace, accelerators=["typo"])
        assert applied(warning, job) == ""
        assert warning.get("trainingjobs", "typo", namespace) is not None
    finally:
        warning.cluster.kubectl(*scale, "--replicas=2")
    eventually(lambda: TYPO in rehearsed(warning, namespace), within_s=120, what="it warns again")
    warning.job_waits_for("typo", namespace, "UnknownAccelerator")
