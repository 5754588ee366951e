# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""`make release` is pushed to a real registry and installed from there by the words of the guide.

The guide's own lines run in a shell. What differs here: the registry's address, plain HTTP, and
emulated devices. No release came before this one, so the later one of the upgrade is the same code
under another version, tag and setting.
"""

from __future__ import annotations

import platform
import re
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
import yaml

from demo.cluster import LOCALCLUSTER
from demo.images import ROOT, WHEEL_MACHINES, install_tools
from demo.install import NAMESPACE, RELEASE, install, uninstall
from demo.progress import Progress, run
from e2e.stack import Stack, busy_template, eventually, share, training_job
from neighbours.registry import registry
from release.__main__ import version
from release.plugin import COMMAND, archive_name

GUIDE: Final = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
PUBLISH: Final = re.compile(r"```sh\n(cd build/release .*?)```", re.DOTALL)
INSTALL: Final = re.compile(r"```sh\n(helm install ullage-crds oci://.*?)```", re.DOTALL)
UPGRADE: Final = re.compile(r"```sh\n(helm upgrade ullage-crds oci://.*?)```", re.DOTALL)
NEXT: Final = "0.1.1"
WAIT: Final = "--wait --timeout 15m"
ELF_AARCH64: Final = 183


@dataclass(frozen=True)
class Published:
    """A release as it lies in the registry."""

    stack: Stack
    folder: Path
    address: str

    def shell(self, pattern: re.Pattern[str]) -> str:
        """Run lines of the guide on the cluster."""
        (lines,) = pattern.findall(GUIDE)
        changes = {
            "registry.example": self.address,
            "cd build/release": f"cd {self.folder}",
            "skopeo copy": "skopeo copy --quiet --dest-tls-verify=false",
            "helm push": "helm push --plain-http",
            "helm install": f"helm install --plain-http {WAIT}",
            "helm upgrade": f"helm upgrade --plain-http {WAIT}",
            "--set image": "--set node.backend=emulated --set image",
            "VERSION": NEXT,
            "NODE": "node-1",
        }
        for old, new in changes.items():
            lines = lines.replace(old, new)
        helm = self.stack.cluster.tool("helm").parent
        return run(LOCALCLUSTER, "exec", "sh", "-ec", f"PATH={helm}:$PATH\n{lines}")

    def runs(self, tag: str) -> None:
        """Wait until our pods run the registry's images of a version, and nodes take work."""
        images = f"{self.address}/ullage/ullage-"
        wanted = {f"{images}operator:{tag}", f"{images}deviceplugin:{tag}"}

        def seen() -> bool:
            pods = self.stack.list("pods", NAMESPACE)
            return wanted == {one["image"] for pod in pods for one in pod["spec"]["containers"]}

        eventually(seen, within_s=90, what=f"all our pods run {wanted}")
        for node in ("node-1", "node-2"):
            eventually(
                lambda node=node: self.stack.takes_work(node), within_s=120, what=f"{node} works"
            )


@pytest.fixture(scope="module")
def published(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    """A release, pushed by the words of the guide, on a cluster without Ullage."""
    folder = tmp_path_factory.mktemp("release")
    install_tools(Progress(), "skopeo")
    with registry(stack.cluster, tmp_path_factory.mktemp("registry")) as address:
        run(
            sys.executable, "-m", "release", "--folder", str(folder),
            "--registry", f"{address}/ullage",
            "--plugin-url", "https://example.org/releases/{version}/{file}",
        )  # fmt: skip
        found = Published(stack, folder, address)
        found.shell(PUBLISH)
        uninstall(stack.cluster)
        helm(stack, "uninstall", "ullage-crds")
        yield found
        install(stack.cluster, Progress())


def test_the_guide_installs_it_and_nodes_pull_its_images(published: Published) -> None:
    stack = published.stack
    said = published.shell(INSTALL)
    assert "STATUS: deployed" in said
    published.runs(version())
    events = [one for one in stack.list("events", NAMESPACE) if one["reason"] == "Pulled"]
    pulled = [one for one in events if one["message"].startswith("Successfully pulled")]
    assert any(f"{published.address}/ullage/ullage-" in one["message"] for one in pulled)


def test_an_upgrade_and_a_rollback_touch_no_running_workload(
    published: Published, namespace: str
) -> None:
    stack = published.stack
    stack.apply(
        training_job("counted", namespace, gpu=share(30)),
        training_job("waits", namespace, gpu=share(60)),
    )
    stack.job_reaches("counted", namespace, "Running")
    stack.job_reaches("waits", namespace, "Running")
    before = stack.holdings(namespace)
    assert len(before["restarts"]) == len(before["slices"]) == 2
    later(published)

    published.shell(UPGRADE)
    published.runs(NEXT)
    stack.books_balance()
    assert stack.holdings(namespace) == before

    helm(stack, "rollback", RELEASE, *WAIT.split())
    published.runs(version())
    stack.books_balance()
    assert stack.holdings(namespace) == before
    stack.apply(training_job("after", namespace, busy_template(2), gpu=share(20)))
    stack.job_reaches("after", namespace, "Succeeded", within_s=120)
    assert stack.holdings(namespace)["slices"] == before["slices"]


def test_an_uninstall_leaves_nothing(published: Published) -> None:
    uninstall(published.stack.cluster)
    published.stack.nothing_is_left()


def test_the_plugin_of_the_release_runs_and_its_libraries_are_of_its_platform(
    published: Published, tmp_path: Path
) -> None:
    body = yaml.safe_load((published.folder / "ullage.yaml").read_text(encoding="utf-8"))
    assert [one["selector"]["matchLabels"]["arch"] for one in body["spec"]["platforms"]] == [
        *WHEEL_MACHINES
    ]
    machine = {name: key for key, name in WHEEL_MACHINES.items()}[platform.machine()]
    with tarfile.open(published.folder / archive_name(version(), machine)) as archive:
        archive.extractall(tmp_path, filter="data")
    words = (LOCALCLUSTER, "exec", "env", "-u", "PYTHONPATH", str(tmp_path / COMMAND))
    assert run(*words, "--version").strip() == version()
    assert "nothing here yet" in run(*words, "status", "--all-namespaces")
    with tarfile.open(published.folder / archive_name(version(), "arm64")) as archive:
        compiled = [one for one in archive if one.name.endswith(".so")]
        assert len(compiled) > 50
        for member in compiled:
            file = archive.extractfile(member)
            assert file is not None
            head = file.read(20)
            assert int.from_bytes(head[18:20], "little") == ELF_AARCH64, member.name


def later(published: Published) -> None:
    """A later release in the registry: charts and tags of another version."""
    of_registry = f"docker://{published.address}/ullage/ullage-"
    for target in ("operator", "deviceplugin"):
        run(
            "skopeo", "copy", "--quiet", "--src-tls-verify=false", "--dest-tls-verify=false",
            f"{of_registry}{target}:{version()}", f"{of_registry}{target}:{NEXT}",
        )  # fmt: skip
    for chart in ("ullage-crds", "ullage"):
        helm(
            published.stack, "package", str(ROOT / "charts" / chart), "--version", NEXT,
            "--app-version", NEXT, "--destination", str(published.folder),
        )  # fmt: skip
        archive = published.folder / f"{chart}-{NEXT}.tgz"
        charts = f"oci://{published.address}/ullage/charts"
        helm(published.stack, "push", "--plain-http", str(archive), charts)


def helm(stack: Stack, *words: str) -> str:
    return stack.cluster.helm(*words, "--namespace", NAMESPACE)
