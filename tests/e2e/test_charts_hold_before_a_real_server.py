# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the charts render is valid to a real API server: every field known, no warning.

Strict validation by the server itself, in a dry run; policies are compiled and checked by it, too.
Kinds of other projects (Prometheus Operator, cert-manager) are left out: the cluster does not serve
them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from chart.rendered import Helm
from chart.variants import SERVED, VALUES, VARIANTS
from e2e.stack import Json, Stack

NAMESPACE = "chart-house"
FOREIGN = {"Certificate", "Issuer", "PodMonitor", "PrometheusRule"}


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
    bodies = helm.template(*VARIANTS[variant], namespace=house).objects
    assert _accepted(stack, bodies) > 10


def test_what_each_value_changes_is_valid_too(stack: Stack, house: str, tmp_path: Path) -> None:
    """Objects that differ from those without the value, all of them in one question."""
    helm = Helm(str(stack.cluster.tool("helm")), tmp_path)
    usual = helm.template(*SERVED, namespace=house).objects
    changed = {
        json.dumps(body, sort_keys=True): body
        for path, case in VALUES.items()
        for body in helm.template(*case.words(path), *SERVED, namespace=house).objects
        if body not in usual
    }
    assert _accepted(stack, [*changed.values()]) > len(VALUES)


def _accepted(stack: Stack, objects: Sequence[Json]) -> int:
    """How many objects the server would take, every one without a warning."""
    bodies = [one for one in objects if one["kind"] not in FOREIGN]
    said = stack.cluster.kubectl(
        "apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict",
        "--warnings-as-errors", "-f", "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies}),
        check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stderr
    assert "Warning" not in said.stderr
    assert len(said.stdout.splitlines()) == len(bodies)
    return len(bodies)
