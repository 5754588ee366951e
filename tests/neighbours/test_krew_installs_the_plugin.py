# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""krew itself takes the manifest of a release, installs the archive of this machine and removes it.

krew asks no network for an archive that is given, and an empty index of its own is all that it
wants to remove one; the manifest's address is one that will exist when the release is published.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from demo.cluster import LocalCluster
from demo.images import BASE_PYTHON, WHEEL_MACHINES, this_platform
from release.__main__ import version
from release.plugin import COMMAND, manifest, write_archive

pytestmark = pytest.mark.skipif(
    shutil.which(f"python{BASE_PYTHON}") is None, reason=f"the plugin needs python{BASE_PYTHON}"
)


@dataclass(frozen=True)
class Krew:
    """krew with a folder of its own."""

    program: Path
    root: Path
    archive: Path
    manifest: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.program), *words],
            env={**os.environ, "KREW_ROOT": str(self.root), "HOME": str(self.root)},
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def install(self, manifest: Path) -> subprocess.CompletedProcess[str]:
        return self.run("install", f"--manifest={manifest}", f"--archive={self.archive}")

    @property
    def command(self) -> Path:
        return self.root / "bin" / COMMAND


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The archive of this machine, and the manifest."""
    folder = tmp_path_factory.mktemp("release")
    archive = write_archive(folder, version(), this_platform())
    text = manifest(
        version(), "https://example.org/releases/{version}/{file}",
        dict.fromkeys(WHEEL_MACHINES, archive),
    )  # fmt: skip
    (folder / "ullage.yaml").write_text(text, encoding="utf-8")
    return archive, folder / "ullage.yaml"


@pytest.fixture
def krew(release: tuple[Path, Path], tmp_path: Path) -> Krew:
    index = tmp_path / "krew" / "index" / "default"
    subprocess.run(["git", "init", "--quiet", str(index)], check=True)
    return Krew(LocalCluster().tool("krew"), tmp_path / "krew", *release)


def test_krew_installs_the_command_which_runs_and_removes_all_of_it(krew: Krew) -> None:
    done = krew.install(krew.manifest)
    assert done.returncode == 0, done.stderr
    assert "Installed plugin: ullage" in done.stderr
    assert f"python{BASE_PYTHON}" in done.stderr, "what it needs is said at the installation"

    found = subprocess.run(
        [str(krew.command), "--version"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == version()
    explained = subprocess.run(
        [str(krew.command), "explain", "QuotaExceeded"], capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "quota" in explained.stdout

    gone = krew.run("uninstall", "ullage")
    assert gone.returncode == 0, gone.stderr
    assert not krew.command.exists()
    assert not (krew.root / "store" / "ullage" / f"v{version()}").exists()


def test_krew_takes_no_archive_with_other_content(krew: Krew, tmp_path: Path) -> None:
    body = yaml.safe_load(krew.manifest.read_text())
    for platform in body["spec"]["platforms"]:
        platform["sha256"] = "0" * 64
    other = tmp_path / "ullage.yaml"
    other.write_text(yaml.safe_dump(body))
    done = krew.install(other)
    assert done.returncode != 0
    assert "checksum does not match" in done.stderr
    assert not krew.command.exists()
