# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""OCI archives: their name, and what is installed in them.

Reads the layers of an image as they lie in its archive; it runs nothing of it.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

NAME: Final = "org.opencontainers.image.ref.name"
_INDEX: Final = "index.json"
_WHITEOUT: Final = ".wh."
_DPKG: Final = PurePosixPath("var/lib/dpkg/status")


@dataclass(frozen=True, slots=True, order=True)
class Package:
    """Something that is installed in an image.

    Attributes:
        kind: ``pypi`` or ``deb``.
        name: As its own index has it.
        version: The same.
    """

    kind: str
    name: str
    version: str


def renamed(archive: Path, to: Path, name: str) -> None:
    """Copy an archive under another image name.

    Args:
        archive: An OCI archive with one image.
        to: Where the copy goes.
        name: Name and tag under which it is to be loaded.

    Raises:
        ValueError: the archive holds no image, or several.
    """
    with tarfile.open(archive) as old, tarfile.open(to, "w") as new:
        for member in old:
            content = old.extractfile(member)
            if member.name == _INDEX and content is not None:
                index = json.load(content)
                if len(index["manifests"]) != 1:
                    raise ValueError(f"{archive} holds {len(index['manifests'])} images, not one")
                index["manifests"][0].setdefault("annotations", {})[NAME] = name
                data = json.dumps(index, separators=(",", ":")).encode()
                member.size, content = len(data), io.BytesIO(data)
            new.addfile(member, content)


def packages(archive: Path) -> list[Package]:
    """What is installed in the one image of an archive, sorted: Debian's packages and Python's."""
    python: dict[PurePosixPath, Package] = {}
    debian: tuple[Package, ...] = ()
    with tarfile.open(archive) as image:
        for layer in _layers(image):
            for member in layer:
                path = PurePosixPath(member.name.removeprefix("./"))
                if path.name.startswith(_WHITEOUT):
                    gone = path.with_name(path.name.removeprefix(_WHITEOUT))
                    python = {at: one for at, one in python.items() if not at.is_relative_to(gone)}
                elif path == _DPKG:
                    debian = tuple(_of_debian(_text(layer, member)))
                elif path.name == "METADATA" and path.parent.suffix == ".dist-info":
                    said = HeaderParser().parsestr(_text(layer, member))
                    python[path] = Package("pypi", str(said["Name"]), str(said["Version"]))
    return sorted({*python.values(), *debian})


def _layers(image: tarfile.TarFile) -> Iterator[tarfile.TarFile]:
    """The layers of the image, the lowest first."""
    index = json.loads(_text(image, image.getmember(_INDEX)))
    manifest = json.loads(_text(image, _blob(image, index["manifests"][0]["digest"])))
    for layer in manifest["layers"]:
        content = image.extractfile(_blob(image, layer["digest"]))
        with tarfile.open(fileobj=content) as opened:
            yield opened


def _blob(image: tarfile.TarFile, digest: str) -> tarfile.TarInfo:
    return image.getmember(f"blobs/{digest.replace(':', '/')}")


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    content = archive.extractfile(member)
    return "" if content is None else content.read().decode("utf-8", "replace")


def _of_debian(status: str) -> Iterator[Package]:
    """Packages of dpkg's own list that are installed."""
    for entry in status.split("\n\n"):
        said = HeaderParser().parsestr(entry)
        if said["Package"] and str(said["Status"]).endswith(" installed"):
            yield Package("deb", said["Package"], said["Version"])
