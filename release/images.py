# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""OCI archives: their name, what is installed in them, and what must not be.

Reads the layers of an image as they lie in its archive; it runs nothing of it.
"""

from __future__ import annotations

import io
import json
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path, PurePosixPath
from typing import Final

NAME: Final = "org.opencontainers.image.ref.name"
_INDEX: Final = "index.json"
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_DPKG: Final = PurePosixPath("var/lib/dpkg/status")
_PROGRAMS: Final = frozenset({"bin", "sbin"})
_SHELLS: Final = frozenset({"sh", "bash", "rbash", "dash", "ash", "ksh", "zsh", "busybox"})
_INSTALLERS: Final = frozenset({"apt", "apt-get", "dpkg", "pip", "pip3", "perl"})
_OTHERS_RIGHTS: Final = stat.S_ISUID | stat.S_ISGID


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


def manifest_digest(archive: Path) -> str:
    """SHA-256 of the manifest of the one image of an archive: its digest in any registry."""
    with tarfile.open(archive) as image:
        index = json.loads(_text(image, image.getmember(_INDEX)))
    return str(index["manifests"][0]["digest"]).removeprefix("sha256:")


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


def excess(archive: Path) -> list[str]:
    """Files of the one image of an archive that no final image may hold, each with the reason.

    Shells, what installs packages, and programs that run with the rights of another user or group.
    """
    modes: dict[PurePosixPath, int] = {}
    with tarfile.open(archive) as image:
        for layer in _layers(image):
            lower, modes = modes, {}  # a layer takes away from those below it alone
            for member in layer:
                path = PurePosixPath(member.name.removeprefix("./"))
                if path.name == _OPAQUE:
                    lower = {
                        at: mode for at, mode in lower.items() if path.parent not in at.parents
                    }
                elif path.name.startswith(_WHITEOUT):
                    gone = path.with_name(path.name.removeprefix(_WHITEOUT))
                    lower = {at: mode for at, mode in lower.items() if not at.is_relative_to(gone)}
                elif not member.isdir():
                    modes[path] = 0 if member.issym() else member.mode
            modes = lower | modes
    reasons = ((path, _excess_of(path, mode)) for path, mode in sorted(modes.items()))
    return [f"/{path}: {reason}" for path, reason in reasons if reason]


def _excess_of(path: PurePosixPath, mode: int) -> str:
    """Why a file is too much; empty = it is not."""
    if path.parent.name in _PROGRAMS:
        if path.name in _SHELLS:
            return "a shell"
        if path.name in _INSTALLERS:
            return "installs or runs what is no part of the image"
    return "runs with the rights of another" if mode & _OTHERS_RIGHTS else ""


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
