# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the charts render is valid to a real API server: every field known, no warning.

Strict validation by the server itself, in a dry run; policies are compiled and checked by it, too.
Kinds of other projects (Prometheus Operator) are left out: the cluster does not serve them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from chart.rendered import VALUES_FILES, Helm
from e2e.stack import Stack

NAMESPACE = "chart-house"
FOREIGN = {"PodMonitor", "PrometheusRule"}
VARIANTS: dict[str, tuple[str, ...]] = {
    **{path.stem: ("-f", str(path)) for path in VALUES_FILES},
    "no-user-roles": ("--set", "rbac.userRoles=false"),
    "no-retire-hook": ("--set", "retireHook.enabled=false"),
    "no-network-policies": ("--set", "networkPolicy.enabled=false"),
    "no-admission": ("--set", "admissionPolicy.enabled=false"),
    "no-adoption": ("--set", "admissionPolicy.adoption.enabled=false"),
    "narrow-templates": ("--set", "admissionPolicy.templates.enabled=true"),
    "monitoring": (
        "--set", "monitoring.podMonitor.enabled=true",
        "--set", "monitoring.prometheusRule.enabled=true",
        "--set", "monitoring.dashboards.enabled=true",
    ),
    "no-mps": ("--set", "node.mps.enabled=false"),
    "mig": ("--set", "node.mig.enabled=true"),
    "emulated": ("--set", "node.backend=emulated"),
    "host-network": ("--set", "node.hostNetwork=true"),
    "no-guard": ("--set", "node.guard.enabled=false"),
    "no-step-mounts": ("--set", "node.stepMounts.enabled=false"),
    "ec2-notices": ("--set", "node.notices.provider=EC2"),
    "one-replica": ("--set", "operator.replicas=1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def house(stack: Stack) -> Iterator[str]:
    """A namespace for rehearsals."""
    stack.cluster.kubectl("create", "namespace", NAMESPACE)
    yield NAMESPACE
    stack.cluster.kubectl("delete", "namespace", NAMESPACE)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_object_is_valid_and_without_a_warning(
    stack: Stack, house: str, variant: str, tmp_path: Path
) -> None:
    helm = Helm(str(stack.cluster.tool("helm")), tmp_path)
    rendered = helm.template(*VARIANTS[variant], namespace=house)
    bodies = [one for one in rendered.objects if one["kind"] not in FOREIGN]
    said = stack.cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
        "--warnings-as-errors", "-f", "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}),
        check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "Warning" not in said.stderr
    assert len(said.stdout.splitlines()) == len(bodies) > 10
