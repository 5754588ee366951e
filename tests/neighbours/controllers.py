# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers of other projects, compiled from their Go modules, as processes beside the cluster.

Each serves its webhooks on the loopback address, where the API server finds them by URL.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from demo.cluster import LocalCluster
from e2e.karpenter import process
from e2e.stack import Json


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A project's controller.

    Attributes:
        tool: Name of the program that the local cluster builds.
        config: API group and version of its configuration.
        pod_label: Label of its own pods; its webhooks for pods see these only, as its own
            installation has it.
        port: Of its webhooks; the next two are those of its metrics and its health.
    """

    tool: str
    config: str
    pod_label: str
    port: int


JOBSET = Neighbour(
    tool="jobset",
    config="config.jobset.x-k8s.io/v1alpha1",
    pod_label="jobset.sigs.k8s.io/jobset-name",
    port=19443,
)
LEADER_WORKER_SET = Neighbour(
    tool="lws",
    config="config.lws.x-k8s.io/v1alpha1",
    pod_label="leaderworkerset.sigs.k8s.io/name",
    port=19543,
)


@contextmanager
def controller(cluster: LocalCluster, neighbour: Neighbour, folder: Path) -> Iterator[None]:
    """The neighbour's controller runs while this lasts; its definitions and webhooks stay.

    Args:
        cluster: Where it works.
        neighbour: Which one.
        folder: For its certificate and its configuration.
    """
    program = cluster.tool(neighbour.tool)
    authority = _certificate(folder)
    cluster.kubectl("apply", "--server-side", "--filename", str(program.parent / "crds.yaml"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    config = folder / "config.yaml"
    config.write_text(json.dumps(_configuration(neighbour, folder)))
    words = [str(program), f"--config={config}"]
    with process(neighbour.tool, words, {"KUBECONFIG": str(cluster.kubeconfig)}):
        bodies = list(_webhooks(neighbour, program.parent / "webhooks.yaml", authority))
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
        cluster.kubectl("apply", "--filename", "-", stdin=listed)
        yield


def remove_webhooks(cluster: LocalCluster, neighbour: Neighbour) -> None:
    """Take the neighbour's webhooks away: without its controller they refuse what it owns."""
    for kind in ("mutating", "validating"):
        name = f"{neighbour.tool}-{kind}"
        cluster.kubectl("delete", f"{kind}webhookconfigurations", name, "--ignore-not-found")


def _certificate(folder: Path) -> str:
    """Make a certificate for the loopback address; returns it as the API wants it."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


def _configuration(neighbour: Neighbour, folder: Path) -> Json:
    return {
        "apiVersion": neighbour.config,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": neighbour.port, "certDir": str(folder)},
        "metrics": {"bindAddress": f"127.0.0.1:{neighbour.port + 1}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{neighbour.port + 2}"},
    }


def _webhooks(neighbour: Neighbour, path: Path, authority: str) -> Iterator[Json]:
    """The neighbour's own webhook configurations, reached by URL."""
    for body in yaml.safe_load_all(path.read_text("utf-8")):
        if not body:
            continue
        kind = body["kind"].removesuffix("WebhookConfiguration").lower()
        body["metadata"] = {"name": f"{neighbour.tool}-{kind}"}
        for webhook in body["webhooks"]:
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{neighbour.port}{_path(webhook)}",
                "caBundle": authority,
            }
            if any("pods" in rule["resources"] for rule in webhook["rules"]):
                webhook["objectSelector"] = _own_pods(neighbour)
        yield body


def _path(webhook: Mapping[str, Any]) -> str:
    path: str = webhook["clientConfig"]["service"]["path"]
    return path


def _own_pods(neighbour: Neighbour) -> Json:
    return {"matchExpressions": [{"key": neighbour.pod_label, "operator": "Exists"}]}
