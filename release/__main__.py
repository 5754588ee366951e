# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m release``: everything of a release in one folder, with checksums.

Publishes nothing: pushing images and charts to a registry is left to its owner.
"""

from __future__ import annotations

import argparse
import hashlib
import platform
import shutil
import tomllib
from pathlib import Path
from typing import Final

from demo.cluster import LocalCluster
from demo.images import ROOT, TARGETS, build_all, build_wheel
from demo.progress import Progress, ending_with_a_reason, run
from release.images import packages, renamed
from release.sbom import bill

FOLDER: Final = ROOT / "build" / "release"
CHARTS: Final = ("ullage-crds", "ullage")
SUMS: Final = "SHA256SUMS"
MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


def version() -> str:
    """Of the product; charts and images have the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def image_names(registry: str) -> dict[str, str]:
    """Name of each image by the target of the Dockerfile; ``registry`` may be empty."""
    prefix = f"{registry.rstrip('/')}/" if registry else ""
    return {target: f"{prefix}ullage-{target}:{version()}" for target in TARGETS}


def write_images(folder: Path, registry: str, progress: Progress) -> None:
    """An archive and a bill of materials for each image, of this machine's architecture."""
    archives = build_all(progress)
    machine = MACHINES.get(platform.machine(), platform.machine())
    for target, name in image_names(registry).items():
        stem = f"ullage-{target}-{version()}-{machine}"
        with progress.step(f"write {stem}"):
            renamed(archives[target], folder / f"{stem}.oci.tar", name)
            text = bill(f"ullage-{target}", version(), packages(archives[target]))
            (folder / f"{stem}.cdx.json").write_text(text + "\n", encoding="utf-8")


def write_charts(folder: Path, progress: Progress) -> None:
    """Both charts, packed by Helm."""
    helm = str(LocalCluster().tool("helm"))
    for chart in CHARTS:
        with progress.step(f"pack chart {chart}"):
            run(helm, "package", str(ROOT / "charts" / chart), "--destination", str(folder))


def write_wheel(folder: Path, progress: Progress) -> None:
    """The wheel that pip installs."""
    with progress.step("build the wheel"):
        build_wheel(folder)


def write_sums(folder: Path) -> Path:
    """Checksums of all files of a folder, as ``sha256sum --check`` reads them."""
    lines = []
    for path in sorted(folder.iterdir()):
        if path.name != SUMS:
            with path.open("rb") as file:
                lines.append(f"{hashlib.file_digest(file, 'sha256').hexdigest()}  {path.name}\n")
    sums = folder / SUMS
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def main() -> None:
    """Make the release, and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--registry", default="", help="registry and path before image names")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where it goes; emptied first")
    options = parser.parse_args()
    progress = Progress()
    with ending_with_a_reason():
        shutil.rmtree(options.folder, ignore_errors=True)
        options.folder.mkdir(parents=True)
        write_images(options.folder, options.registry, progress)
        write_charts(options.folder, progress)
        write_wheel(options.folder, progress)
        print(write_sums(options.folder))


if __name__ == "__main__":
    main()
