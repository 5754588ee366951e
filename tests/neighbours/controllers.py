# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Controllers of other projects, compiled from their Go modules, as processes beside the cluster.

Each serves its webhooks on the loopback address, where the API server finds them by URL.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
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
        config: API group and version of its configuration; empty = it has flags instead.
        settings: More of its configuration.
        certificates: Folder where it looks for certificates, whatever its configuration says.
        prepare: Makes what must be there before it starts.
        webhooks: Name that it expects of its webhook configuration.
    """

    tool: str
    pod_label: str
    port: int
    narrowed: Json = field(default_factory=dict)
    wide: tuple[str, ...] = ("pods",)
    config: str = ""
    settings: Json = field(default_factory=dict)
    certificates: Path | None = None
    prepare: Callable[[LocalCluster, Path], None] | None = None
    webhooks: str = ""

    def configuration_name(self, kind: str) -> str:
        """Of its webhook configuration of a kind, ``mutating`` or ``validating``."""
        return self.webhooks or f"{self.tool}-{kind}"


def _of_pods_labelled(key: str) -> Json:
    return {"objectSelector": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}


def _prepare_trainer(cluster: LocalCluster, folder: Path) -> None:
    """Its certificates as a Secret; it would make others that name no address."""
    files = {name: folder / name for name in CERTIFICATES}
    data = {name: base64.b64encode(path.read_bytes()).decode() for name, path in files.items()}
    place = {"name": "kubeflow-trainer-webhook-cert", "namespace": "kubeflow-system"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": place, "data": data}
    _apply(cluster, space)
    _apply(cluster, secret)


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
    pod_label="jobset.sigs.k8s.io/jobset-name",
    port=19643,
    certificates=Path("/tmp/k8s-webhook-server/serving-certs"),
    prepare=_prepare_trainer,
    webhooks="validator.trainer.kubeflow.org",
)
KUEUE = Neighbour(
    tool="kueue",
    config="config.kueue.x-k8s.io/v1beta1",
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
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    if neighbour.prepare is not None:
        neighbour.prepare(cluster, folder)
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
    """Make a certificate for the loopback address, its own authority; returns it as the API does.

    The names are those that Trainer asks of the certificate in its Secret.
    """
    names = (
        "IP:127.0.0.1",
        "DNS:kubeflow-trainer-ca",
        "DNS:kubeflow-trainer-controller-manager.kubeflow-system.svc",
    )
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "400",
            "-subj", "/CN=neighbours", "-addext", f"subjectAltName={','.join(names)}",
            "-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt"),
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    # Trainer reads keys of the traditional form only
    key = str(folder / "tls.key")
    words = ["openssl", "rsa", "-traditional", "-in", key, "-out", key]
    subprocess.run(words, check=True, capture_output=True)
    for kind in ("crt", "key"):
        (folder / f"ca.{kind}").write_bytes((folder / f"tls.{kind}").read_bytes())
    return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


def _arguments(neighbour: Neighbour, folder: Path) -> list[str]:
    """What its program is started with."""
    health = f"127.0.0.1:{neighbour.port + 2}"
    if not neighbour.config:
        flags = f"--webhook-server-port={neighbour.port}", f"--health-probe-bind-address={health}"
        return list(flags)
    body = {
        "apiVersion": neighbour.config,
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"host": "127.0.0.1", "port": neighbour.port, "certDir": str(folder)},
        "metrics": {"bindAddress": f"127.0.0.1:{neighbour.port + 1}"},
        "health": {"healthProbeBindAddress": health},
        **neighbour.settings,
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
