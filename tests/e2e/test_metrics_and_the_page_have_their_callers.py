# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics over TLS for callers with the right, and the web page, on a real cluster."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from demo.install import CHARTS, NAMESPACE, RELEASE, agents_rolled, chart_values, install
from demo.progress import Progress, run
from e2e.stack import Stack, eventually, share, training_job

SECRET = "test-metrics"
SERVED_AS = f"ullage-metrics.{NAMESPACE}.svc"
READER = "test-scraper"
STRANGER = "test-stranger"
PORTS = {"operator": (8443, 8080), "node": (8444, 8081)}
"""Of each part: with TLS, and in the clear."""
OPEN = (
    "--set", "monitoring.secureMetrics.enabled=true",
    "--set", f"monitoring.secureMetrics.tlsSecret={SECRET}",
    "--set", "webPage.enabled=true",
    "--set", "webPage.proxy=true",
    "--set", "networkPolicy.enabled=false",
)  # fmt: skip


@dataclass(frozen=True)
class Watched:
    """An installation with both turned on."""

    stack: Stack
    trust: ssl.SSLContext

    def pods(self, component: str) -> dict[str, str]:
        """Address of each running pod of a part, by name."""
        selector = f"app.kubernetes.io/component={component}"
        return {
            pod["metadata"]["name"]: pod["status"]["podIP"]
            for pod in self.stack.list("pods", NAMESPACE, selector)
            if pod["status"].get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        }

    def token(self, account: str) -> str:
        """A token of an account, as a pod of it would have."""
        done = self.stack.cluster.kubectl("create", "token", account, "--namespace", NAMESPACE)
        return done.stdout.strip()

    def read(self, address: str, port: int, token: str = "") -> tuple[int, str]:
        """Status and text of /metrics over TLS."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"https://{address}:{port}/metrics", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.trust) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()


@pytest.fixture(scope="module")
def watched(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("metrics")
    key, certificate = _signed(folder)
    kubectl = stack.cluster.kubectl
    kubectl(
        "create", "secret", "tls", SECRET, "--namespace", NAMESPACE,
        "--cert", str(certificate), "--key", str(key),
    )  # fmt: skip
    for account in (READER, STRANGER):
        kubectl("create", "serviceaccount", account, "--namespace", NAMESPACE)
    kubectl(
        "create", "clusterrolebinding", READER, "--clusterrole", "ullage-metrics-reader",
        "--serviceaccount", f"{NAMESPACE}:{READER}",
    )  # fmt: skip
    trust = ssl.create_default_context(cafile=str(certificate))
    trust.check_hostname = False  # pods are asked by address; the issuer is checked
    try:
        stack.cluster.helm(
            "upgrade", RELEASE, str(CHARTS / "ullage"), "--namespace", NAMESPACE,
            "--wait", "--timeout", "15m", *chart_values(), *OPEN,
        )  # fmt: skip
        agents_rolled(stack.cluster)
        yield Watched(stack, trust)
    finally:
        install(stack.cluster, Progress())
        kubectl("delete", "clusterrolebinding", READER)
        for account in (READER, STRANGER):
            kubectl("delete", "serviceaccount", account, "--namespace", NAMESPACE)
        kubectl("delete", "secret", SECRET, "--namespace", NAMESPACE)


def _signed(folder: Path) -> tuple[Path, Path]:
    """A key and a certificate for the name of the metrics."""
    key, certificate = folder / "tls.key", folder / "tls.crt"
    run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
        "-subj", f"/CN={SERVED_AS}", "-addext", f"subjectAltName=DNS:{SERVED_AS}",
        "-keyout", str(key), "-out", str(certificate),
    )  # fmt: skip
    return key, certificate


@pytest.mark.parametrize("component", sorted(PORTS))
def test_metrics_are_for_accounts_with_the_right(watched: Watched, component: str) -> None:
    secure, clear = PORTS[component]
    pods = eventually(
        lambda: found if len(found := watched.pods(component)) == 2 else None,
        within_s=60,
        what=f"two pods of {component}",
    )
    reader, stranger = watched.token(READER), watched.token(STRANGER)
    for pod, address in pods.items():
        status, page = watched.read(address, secure, reader)
        assert (status, "ullage_" in page) == (200, True), (pod, page[:300])
        for token, refused in ((stranger, 403), ("", 401), ("x.y.z", 401)):
            status, page = watched.read(address, secure, token)
            assert (status, "ullage_" in page) == (refused, False), (pod, page[:300])
        proxied = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}:{clear}/proxy/metrics"
        done = watched.stack.cluster.kubectl("get", "--raw", proxied, check=False)
        assert (done.returncode != 0, "ullage_" in done.stdout) == (True, False)


def test_the_page_shows_devices_and_work_through_the_proxy(
    watched: Watched, namespace: str
) -> None:
    stack = watched.stack
    stack.apply(training_job("seen", namespace, gpu=share(30)))
    stack.job_reaches("seen", namespace, "Running")
    base = f"/api/v1/namespaces/{NAMESPACE}/pods/{stack.leader()}:8083/proxy/"

    def read(path: str) -> str:
        return stack.cluster.kubectl("get", "--raw", base + path).stdout

    page = read("")
    assert page.lower().startswith("<!doctype html>")
    assert 'src="page.js"' in page  # relative: it works below any prefix
    assert "state.json" in read("page.js")

    def shown() -> list[str]:
        devices = json.loads(read("state.json"))["devices"]["items"]
        return [one["name"] for device in devices for one in device["slices"]]

    eventually(lambda: "seen" in shown(), within_s=30, what="the page shows the job's slice")
