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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from demo.cluster import LocalCluster
from e2e.stack import Json
from neighbours.karpenter import process

CERTIFICATES: Final = ("tls.crt", "tls.key", "ca.crt", "ca.key")


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """A project's controller.

    Attributes:
        tool: Name of the program that the local cluster builds.
        pod_label: Label of its own pods.
        port: Of its webhooks; the next two are those of its metrics and its health.
        narrowed: What its own installation narrows its webhooks for pods by.
        wide: Resources that the same holds for.
        config: API group and version of its configuration.
        settings: More of its configuration.
        certificates: Folder where it looks for certificates, whatever its configuration says.
    """

    tool: str
    pod_label: str
    port: int
    narrowed: Json = field(default_factory=dict)
    wide: tuple[str, ...] = ("pods",)
    config: str
    settings: Json = field(default_factory=dict)
    certificates: Path | None = None

    def configuration_name(self, kind: str) -> str:
        """Of its webhook configuration of a kind, ``mutating`` or ``validating``."""
        return f"{self.tool}-{kind}"


def _of_pods_labelled(key: str) -> Json:
    return {"objectSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}


JOBSET = Neighbour(
    tool="jobset",
    config="config.jobset.x-k8s.io/v1alpha1",
    pod_label="jobset.sigs.k8s.io/jobset-name",
    narrowed=_of_pods_labelled("jobset.sigs.k8s.io/jobset-name"),
    port=19443,
)
LEADER_WORKER_SET = Neighbour(
    tool="lws",
    config="config.lws.x-k8s.io/v1alpha1",
    pod_label="leaderworkerset.sigs.k8s.io/name",
    narrowed=_of_pods_labelled("leaderworkerset.sigs.k8s.io/name"),
    port=19543,
)
TRAINER = Neighbour(
    tool="trainer",
    config="config.trainer.kubeflow.org/v1alpha1",
    pod_label="jobset.sigs.k8s.io/jobset-name",
    settings={"certManagement": {"enable": False}},
    port=19643,
    certificates=Path("/tmp/k8s-webhook-server/serving-certs"),
)
KUEUE = Neighbour(
    tool="kueue",
    config="config.kueue.x-k8s.io/v1beta2",
    pod_label="kueue.x-k8s.io/queue-name",
    narrowed={
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["kube-system", "kueue-system"],
                }
            ]
        }
    },
    wide=("pods", "deployments", "statefulsets"),
    settings={
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "featureGates": {"VisibilityOnDemand": False},  # an API server of its own, on a fixed port
    },
    port=19743,
    certificates=Path("/etc/kueue/metrics/certs"),
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
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=600s", "crd", "--all")
    for body in _webhooks(neighbour, program.parent / "webhooks.yaml", authority):
        _apply(cluster, body)
    words = [str(program), *_arguments(neighbour, folder)]
    with (
        _certificates_in_place(neighbour, folder),
        process(neighbour.tool, words, {"KUBECONFIG": str(cluster.kubeconfig)}),
    ):
        yield


def remove_webhooks(cluster: LocalCluster, neighbour: Neighbour) -> None:
    """Take the neighbour's webhooks away: without its controller they refuse what it owns."""
    for kind in ("mutating", "validating"):
        name = neighbour.configuration_name(kind)
        cluster.kubectl("delete", f"{kind}webhookconfigurations", name, "--ignore-not-found")


@contextmanager
def _certificates_in_place(neighbour: Neighbour, folder: Path) -> Iterator[None]:
    """Files where it looks for them, while this lasts."""
    place = neighbour.certificates
    if place is None:
        yield
        return
    place.mkdir(parents=True, exist_ok=True)
    try:
        for name in CERTIFICATES:
            (place / name).write_bytes((folder / name).read_bytes())
        yield
    finally:
        for name in CERTIFICATES:
            (place / name).unlink(missing_ok=True)


def _apply(cluster: LocalCluster, body: Json) -> None:
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(body))


def _certificate(folder: Path) -> str:
    """A certificate for the loopback address, its own authority, as the API wants it."""
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "400",
            "-subj", "/CN=neighbours", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    for kind in ("crt", "key"):
        (folder / f"ca.{kind}").write_bytes((folder / f"tls.{kind}").read_bytes())
    return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


def _arguments(neighbour: Neighbour, folder: Path) -> list[str]:
    """What its program is started with."""
    webhook: Json = {"host": "127.0.0.1", "port": neighbour.port}
    own: Json = neighbour.settings
    if "certManagement" not in own:  # Trainer's word, which has no folder of certificates
        webhook["certDir"] = str(folder)
        own = {"internalCertManagement": {"enable": False}, **own}
    body = {
        "apiVersion": neighbour.config,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "webhook": webhook,
        "metrics": {"bindAddress": f"127.0.0.1:{neighbour.port + 1}"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{neighbour.port + 2}"},
        **own,
    }
    path = folder / "config.yaml"
    path.write_text(json.dumps(body))
    return [f"--config={path}"]


def _webhooks(neighbour: Neighbour, path: Path, authority: str) -> Iterator[Json]:
    """The neighbour's own webhook configurations, reached by URL."""
    for body in yaml.safe_load_all(path.read_text("utf-8")):
        if not body:
            continue
        kind = body["kind"].removesuffix("WebhookConfiguration").lower()
        body["metadata"] = {"name": neighbour.configuration_name(kind)}
        for webhook in body["webhooks"]:
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{neighbour.port}{_path(webhook)}",
                "caBundle": authority,
            }
            if any(
                name in rule["resources"] for rule in webhook["rules"] for name in neighbour.wide
            ):
                webhook.update(neighbour.narrowed)
        yield body


def _path(webhook: Mapping[str, Any]) -> str:
    path: str = webhook["clientConfig"]["service"]["path"]
    return path
