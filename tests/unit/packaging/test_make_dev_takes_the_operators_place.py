# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``make dev`` has the rights and settings of the cluster's operator, and gives its place back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from demo.cluster import LocalCluster
from demo.dev import as_operator, develop, settings_of

ADMIN = json.dumps(
    {
        "kind": "Config",
        "current-context": "local",
        "clusters": [{"name": "local", "cluster": {"server": "https://127.0.0.1:6443"}}],
        "contexts": [
            {"name": "other", "context": {"cluster": "far", "user": "me"}},
            {"name": "local", "context": {"cluster": "local", "user": "admin"}},
        ],
        "users": [{"name": "admin", "user": {"client-key-data": "secret"}}],
    }
)
ENV = [
    {"name": "ULLAGE_IDENTITY", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    {"name": "ULLAGE_LEASE_OWNER", "value": "ullage-operator"},
    {"name": "ULLAGE_HTTP_ADMISSION_PORT", "value": "9443"},
]
DEPLOYMENT = {"spec": {"replicas": 2, "template": {"spec": {"containers": [{"env": ENV}]}}}}


def test_the_kubeconfig_is_the_operators() -> None:
    config = json.loads(as_operator(ADMIN, "token"))
    assert config["contexts"][1]["context"] == {"cluster": "local", "user": "ullage-operator"}
    assert config["users"] == [{"name": "ullage-operator", "user": {"token": "token"}}]
    assert "secret" not in json.dumps(config)


def test_settings_of_the_pod_alone_are_left_out() -> None:
    assert settings_of(DEPLOYMENT) == {"ULLAGE_LEASE_OWNER": "ullage-operator"}


class Cluster:
    """Notes what it is told."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.kubeconfig.write_text(ADMIN)
        self.told: list[tuple[str, ...]] = []

    def kubectl(self, *words: str) -> subprocess.CompletedProcess[str]:
        self.told.append(words)
        answers = {"get": json.dumps(DEPLOYMENT), "create": "token\n"}
        return subprocess.CompletedProcess(words, 0, answers.get(words[0], ""), "")


def test_the_clusters_operator_is_back_however_ours_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, seen = Cluster(tmp_path), []

    def run(command: list[str], *, env: dict[str, str], **_: Any) -> None:
        seen.append((command, env, Path(env["ULLAGE_KUBECONFIG"]).read_text()))
        assert cluster.told[-1][-1] == "--replicas=0"
        raise OSError("kopf cannot be started")

    monkeypatch.setattr("demo.dev.subprocess.run", run)
    monkeypatch.setattr("demo.dev.signal.signal", lambda *_: None)
    with pytest.raises(OSError, match="kopf cannot be started"):
        develop(cast(LocalCluster, cluster))
    ((command, env, kubeconfig),) = seen
    assert command[0] == str(Path(sys.executable).with_name("kopf"))
    assert command[1:3] == ["run", "--dev"]
    assert json.loads(kubeconfig)["users"][0]["user"] == {"token": "token"}
    assert not Path(env["ULLAGE_KUBECONFIG"]).exists()
    assert cluster.told[-1][-1] == "--replicas=2"
