# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage`` as a plugin: an archive for each platform, and the manifest that krew reads.

An archive holds the libraries, so an installation downloads nothing more. They are compiled for one
Python, that of the images; what starts them looks for it and says so where it is missing.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import yaml

from demo.images import BASE_PYTHON, ROOT, build_wheel, pip_platform
from demo.progress import run

COMMAND: Final = "kubectl-ullage"
LIBRARIES: Final = "lib"
GLIBC: Final = 28
"""The oldest that the libraries may need is 2.28: Debian 10, Ubuntu 20.04, RHEL 8."""
LAUNCHER: Final = '''\
#!/usr/bin/env python3
"""Starts kubectl ullage with the libraries beside this file, which are for CPython VERSION."""
import os
import shutil
import sys

if (sys.implementation.name, sys.version_info[:2]) != ("cpython", (NUMBERS)):
    other = shutil.which("pythonVERSION")
    if other is None or os.path.realpath(other) == os.path.realpath(sys.executable):
        sys.exit(
            "kubectl ullage: needs CPython VERSION: install it as pythonVERSION, "
            "or install the command for another Python: pip install 'ullage[cli]'"
        )
    os.execv(other, [other, *sys.argv])
sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib"))
from ullage.cli.main import run

run()
'''


def template_of_addresses(text: str) -> str:
    """A template of the archives' addresses, checked; empty = not known.

    Raises:
        ArgumentTypeError: it is no web address, or archives would share one.
    """
    if text and not (text.startswith(("https://", "http://")) and "{file}" in text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no template of addresses: write one such as "
            "https://example.org/releases/{version}/{file}"
        )
    return text


def launcher(python: str = BASE_PYTHON) -> str:
    """The program that starts the command under a Python, as ``3.11``."""
    return LAUNCHER.replace("VERSION", python).replace("NUMBERS", python.replace(".", ", "))


def archive_name(version: str, platform: str) -> str:
    """File name of a platform's archive."""
    return f"{COMMAND}-{version}-linux-{platform}.tar.gz"


def write_archive(folder: Path, version: str, platform: str) -> Path:
    """The archive of a platform (``amd64``, ``arm64``); any machine makes those of all.

    Raises:
        CommandFailed: a dependency has no wheel for the platform, or none with a pinned hash.
    """
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        libraries = top / LIBRARIES
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
               "--no-compile", "--target", str(libraries))  # fmt: skip
        pinned = ROOT / "requirements" / "cli.txt"
        run(*pip, "--require-hashes", *pip_platform(platform, GLIBC), "-r", str(pinned))
        build_wheel(top)
        (wheel,) = top.glob("*.whl")
        run(*pip, "--no-deps", "--no-index", "--upgrade", str(wheel))
        wheel.unlink()
        shutil.rmtree(libraries / "bin")
        (top / COMMAND).write_text(launcher(), encoding="utf-8")
        (top / COMMAND).chmod(0o755)
        shutil.copy(ROOT / "LICENSE", top)
        archive = folder / archive_name(version, platform)
        pack(top, archive)
    return archive


def pack(top: Path, archive: Path) -> None:
    """Pack a folder so that equal content gives equal bytes."""
    with (
        archive.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as tar,
    ):
        for path in sorted(top.rglob("*")):
            if path.is_file():
                member = tar.gettarinfo(path, str(path.relative_to(top)))
                member.mtime = member.uid = member.gid = 0
                member.uname = member.gname = ""
                with path.open("rb") as content:
                    tar.addfile(member, content)


def manifest(version: str, template: str, archives: Mapping[str, Path]) -> str:
    """The plugin's manifest for krew.

    Args:
        version: Of the release.
        template: Address of an archive; see :func:`template_of_addresses`.
        archives: By platform.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "ullage"},
            "spec": {
                "version": f"v{version}",
                "shortDescription": "See which workloads share GPUs, and why",
                "description": (
                    "Shows what shares each GPU with Ullage, why a workload waits and what would "
                    "help, drains nodes, and tries a policy or a job before you submit it.\n"
                ),
                "caveats": f"Needs CPython {BASE_PYTHON} (python{BASE_PYTHON}), glibc 2.{GLIBC}.\n",
                "platforms": [
                    {
                        "selector": {"matchLabels": {"os": "linux", "arch": platform}},
                        "uri": template.replace("{version}", version).replace("{file}", path.name),
                        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                        "bin": COMMAND,
                    }
                    for platform, path in archives.items()
                ],
            },
        },
        sort_keys=False,
    )
