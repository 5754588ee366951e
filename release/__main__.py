# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``python -m release``: everything of a release in one folder, with checksums.

Publishes nothing: pushing images and charts to a registry is left to its owner.
"""

from __future__ import annotations

import argparse
import json
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
    base_of,
    build_all,
    build_wheel,
    this_platform,
)
from demo.progress import Progress, ending_with_a_reason, run
from release.images import excess, manifest_digest, packages, renamed
from release.plugin import manifest, template_of_addresses, write_archive
from release.provenance import (
    BUILDER,
    CannotSign,
    commit_of,
    envelope,
    sha256,
    signature,
    statement,
)
from release.sbom import bill

FOLDER: Final = ROOT / "build" / "release"
CHARTS: Final = ("ullage-crds", "ullage")
SUMS: Final = "SHA256SUMS"
SUFFIX: Final = ".sig"
"""Of the signature of a file."""
SIGNATURE: Final = SUMS + SUFFIX
SIGNED_ALONE: Final = ("*.oci.tar", "*.tgz")
"""Images and charts: they travel alone, so each has a signature of its own."""
PROVENANCE: Final = "provenance.intoto.json"
DECIDING: Final = ("Dockerfile", "pyproject.toml", "requirements")
"""What decides on what is fetched for a release."""


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
    """An archive and a bill of materials for each image, of one architecture.

    Raises:
        SystemExit: an image holds what no final image may.
    """
    for target, name in image_names(registry).items():
        stem = f"ullage-{target}-{version()}-{architecture}"
        with progress.step(f"write {stem}"):
            if too_much := excess(archives[target]):
                more = f" and {len(too_much) - 5} more" if len(too_much) > 5 else ""
                raise SystemExit(f"{stem} is not released: {'; '.join(too_much[:5])}{more}")
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
    lines = [
        f"{sha256(path)}  {path.name}\n"
        for path in sorted(folder.iterdir())
        if path.name not in (SUMS, SIGNATURE)
    ]
    sums = folder / SUMS
    sums.write_text("".join(lines), encoding="utf-8")
    return sums


def write_provenance(
    folder: Path,
    registry: str,
    parameters: Mapping[str, str],
    *,
    base: tuple[str, str],
    key: Path | None,
    builder: str,
) -> None:
    """What each file, and each image by its manifest, was made from; signed where there is a key.

    Args:
        folder: Of the release.
        registry: Before image names.
        parameters: As the release was asked for.
        base: Name and SHA-256 of what the images stand on.
        key: Signs it.
        builder: URI of who built it.

    Raises:
        CannotSign: it cannot be signed with the key.
    """
    subjects = {path.name: sha256(path) for path in folder.iterdir()}
    for target, name in image_names(registry).items():
        for archive in folder.glob(f"ullage-{target}-*.oci.tar"):
            subjects[name] = manifest_digest(archive)
    inputs = [
        path
        for name in DECIDING
        for path in ([ROOT / name] if (ROOT / name).is_file() else (ROOT / name).iterdir())
    ]
    body = statement(
        subjects,
        commit=commit_of(ROOT),
        inputs=inputs,
        base=base,
        root=ROOT,
        parameters=parameters,
        builder=builder,
    )
    held = body if key is None else envelope(body, key)
    (folder / PROVENANCE).write_text(json.dumps(held, sort_keys=True) + "\n", encoding="utf-8")


def sign(path: Path, key: Path) -> Path:
    """Sign a file, as ``cosign sign-blob --key`` does; the signature lies beside it.

    Raises:
        CannotSign: it cannot be signed with the key.
    """
    to = path.with_name(path.name + SUFFIX)
    to.write_text(signature(path.read_bytes(), key) + "\n", encoding="utf-8")
    return to


def write_proofs(
    folder: Path,
    registry: str,
    parameters: Mapping[str, str],
    *,
    base: tuple[str, str],
    key: Path | None,
    builder: str,
) -> list[Path]:
    """Signatures of each image and chart, the provenance, checksums of all that, their signature.

    Arguments are those of :func:`write_provenance`; without a key nothing is signed.

    Returns:
        The checksums, and their signature where there is a key.

    Raises:
        CannotSign: something cannot be signed with the key.
    """
    if key is not None:
        for pattern in SIGNED_ALONE:
            for path in sorted(folder.glob(pattern)):
                sign(path, key)
    write_provenance(folder, registry, parameters, base=base, key=key, builder=builder)
    sums = write_sums(folder)
    return [sums] if key is None else [sums, sign(sums, key)]


def main() -> None:
    """Make the release, and print where it is."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("--registry", default="", help="registry and path before image names")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where it goes; emptied first")
    parser.add_argument(
        "--platform", choices=tuple(WHEEL_MACHINES), default=this_platform(), help="of the images"
    )
    parser.add_argument(
        "--base", default="", help="IMAGE@sha256:DIGEST with Python that images stand on"
    )
    parser.add_argument(
        "--plugin-url", default="", type=template_of_addresses,
        help="where the plugin's archives will be; {version} and {file} are filled in",
    )  # fmt: skip
    parser.add_argument("--key", type=Path, help="PEM of the EC key (P-256) that signs it")
    parser.add_argument("--builder", default=BUILDER, help="URI of who builds, for the provenance")
    options = parser.parse_args()
    progress = Progress()
    with ending_with_a_reason():
        # refuses what cannot be built here, or from that base
        archives = build_all(progress, options.platform, options.base)
        shutil.rmtree(options.folder, ignore_errors=True)
        options.folder.mkdir(parents=True)
        write_images(options.folder, archives, options.registry, options.platform, progress)
        write_charts(options.folder, progress)
        write_wheel(options.folder, progress)
        write_plugin(options.folder, options.plugin_url, progress)
        parameters = {
            "registry": options.registry,
            "platform": options.platform,
            "base": options.base,
        }
        try:
            for path in write_proofs(
                options.folder,
                options.registry,
                parameters,
                base=base_of(options.platform, options.base),
                key=options.key,
                builder=options.builder,
            ):
                print(path)
        except CannotSign as error:
            raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
