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

from chart.rendered import Helm
from chart.variants import VARIANTS
from e2e.stack import Stack

NAMESPACE = "chart-house"
FOREIGN = {"PodMonitor", "PrometheusRule"}


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
