# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m release``: everything of a release in one folder, with checksums.

Publishes nothing: pushing images and charts to a registry is left to its owner.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from demo.cluster import LocalCluster
from demo.images import (
    ROOT,
    TARGETS,
    WHEEL_MACHINES,
    build_all,
    build_wheel,
    this_platform,
)
from demo.progress import Progress, ending_with_a_reason, run
from release.images import packages, renamed
from release.plugin import manifest, template_of_addresses, write_archive
from release.sbom import bill

FOLDER: Final = ROOT / "build" / "release"
CHARTS: Final = ("ullage-crds", "ullage")
SUMS: Final = "SHA256SUMS"


def version() -> str:
    """Of the product; charts and images have the same."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def image_names(registry: str) -> dict[str, str]:
    """Name of each image by the target of the Dockerfile; ``registry`` may be empty."""
    prefix = f"{registry.rstrip('/')}/" if registry else ""
    return {target: f"{prefix}ullage-{target}:{version()}" for target in TARGETS}


def write_images(
    folder: Path,
    archives: Mapping[str, Path],
    registry: str,
    architecture: str,
    progress: Progress,
) -> None:
    """An archive and a bill of materials for each image, of one architecture."""
    for target, name in image_names(registry).items():
        stem = f"ullage-{target}-{version()}-{architecture}"
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


def write_plugin(folder: Path, template: str, progress: Progress) -> None:
    """The kubectl plugin of every platform; krew's manifest where its address is known."""
    archives = {}
    for architecture in WHEEL_MACHINES:
        with progress.step(f"pack kubectl ullage for {architecture}", expect_s=30):
            archives[architecture] = write_archive(folder, version(), architecture)
    if template:
        text = manifest(version(), template, archives)
        (folder / "ullage.yaml").write_text(text, encoding="utf-8")
    else:
        progress.skip("no krew manifest: say where the archives will be (PLUGIN_URL)")


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
    parser.add_argument(
        "--platform", choices=tuple(WHEEL_MACHINES), default=this_platform(), help="of the images"
    )
    parser.add_argument(
        "--plugin-url", default="", type=template_of_addresses,
        help="where the plugin's archives will be; {version} and {file} are filled in",
    )  # fmt: skip
    options = parser.parse_args()
    progress = Progress()
    with ending_with_a_reason():
        archives = build_all(progress, options.platform)  # refuses what cannot be built here
        shutil.rmtree(options.folder, ignore_errors=True)
        options.folder.mkdir(parents=True)
        write_images(options.folder, archives, options.registry, options.platform, progress)
        write_charts(options.folder, progress)
        write_wheel(options.folder, progress)
        write_plugin(options.folder, options.plugin_url, progress)
        print(write_sums(options.folder))


if __name__ == "__main__":
    main()
