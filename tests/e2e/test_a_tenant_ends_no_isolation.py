# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A class that faulted a device stays isolated, whatever its owner does to the profile."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from e2e.stack import Stack, eventually

TENANT = "tenant-of-the-class"


def test_a_tenant_ends_no_isolation(stack: Stack, namespace: str) -> None:
    def write(*words: str, user: str = "") -> str:
        """What the API server says; empty where it does it."""
        spoken = ("--as", user, "--as-group", "system:authenticated") if user else ()
        done = stack.cluster.kubectl(*words, "--namespace", namespace, *spoken, check=False)
        return "" if done.returncode == 0 else done.stderr

    def profile() -> dict[str, Any]:
        found = stack.cluster.kubectl("get", "wp", "bad", "--namespace", namespace, "-o", "json")
        body: dict[str, Any] = json.loads(found.stdout)
        return body

    def conditions() -> set[str]:
        told = profile().get("status", {}).get("conditions", ())
        return {one["type"] for one in told if one["status"] == "True"}

    words = ("create", "rolebinding", "tenant", "--clusterrole=edit", f"--user={TENANT}")
    assert not write(*words)
    made = {
        "apiVersion": "ullage.dev/v1alpha1",
        "kind": "WorkloadProfile",
        "metadata": {"name": "bad"},
        "spec": {"class": "bad"},
    }
    stack.cluster.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(made))
    fault = {
        "id": "e2e",
        "xid": 31,
        "node": "gone",
        "gpu": "GPU-a",
        "pod": "bad-0",
        "at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    change = ("patch", "wp", "bad", "--type=merge")
    status = json.dumps({"status": {"faults": 1, "recentFaults": [fault]}})
    assert not write(*change, "--subresource=status", "-p", status)
    eventually(
        lambda: "Isolated" in conditions(),
        within_s=90,
        what="the operator says that the class is isolated",
    )

    assert "is isolated" in write("delete", "wp", "bad", user=TENANT)
    assert "is isolated" in write("delete", "wp", "--all", user=TENANT)
    assert "is isolated" in write(*change, "-p", '{"spec": {"class": "other"}}', user=TENANT)
    assert "forbidden" in write(*change, "--subresource=status", "-p", status, user=TENANT)
    assert not write(*change, "-p", '{"spec": {"family": "cnn"}}', user=TENANT)
    assert not write("delete", "wp", "bad", "--dry-run=server")
    assert "Isolated" in conditions()
