# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The kubectl plugin starts where it lies, says which Python it needs, and krew finds it."""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from demo.images import BASE_GLIBC, BASE_PYTHON, WHEEL_MACHINES, build_all, pip_platform
from demo.progress import Progress
from release.plugin import (
    COMMAND,
    GLIBC,
    LIBRARIES,
    archive_name,
    launcher,
    manifest,
    pack,
    template_of_addresses,
)

THIS = f"{sys.version_info.major}.{sys.version_info.minor}"
MAIN = "import sys\ndef run():\n    print('ran', *sys.argv[1:])\n"


def a_plugin(top: Path, python: str) -> Path:
    package = top / LIBRARIES / "ullage" / "cli"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "__init__.py").touch()
    (package / "main.py").write_text(MAIN, encoding="utf-8")
    command = top / COMMAND
    command.write_text(launcher(python), encoding="utf-8")
    command.chmod(0o755)
    return command


def start(command: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    environment = {"PATH": path or os.environ["PATH"]}
    return subprocess.run(
        [sys.executable, str(command), *words],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_it_runs_with_the_libraries_beside_it_even_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    link = tmp_path / COMMAND
    link.symlink_to(a_plugin(tmp_path / "store", THIS))
    assert start(link, "why", "digits").stdout == "ran why digits\n"


def test_another_python_is_found_and_used(tmp_path: Path) -> None:
    command = a_plugin(tmp_path, "3.1")
    other = tmp_path / "python3.1"
    other.write_text('#!/bin/sh\necho "instead" "$2" "$3"\n', encoding="utf-8")
    other.chmod(0o755)
    done = start(command, "why", "digits", path=f"{tmp_path}:{os.environ['PATH']}")
    assert done.stdout == "instead why digits\n"


def test_where_that_python_is_missing_it_says_what_to_install(tmp_path: Path) -> None:
    done = start(a_plugin(tmp_path, "3.1"), "status")
    assert done.returncode == 1
    assert "needs CPython 3.1" in done.stderr
    assert "pip install 'ullage[cli]'" in done.stderr


def test_a_python_that_is_not_what_its_name_says_ends(tmp_path: Path) -> None:
    (tmp_path / "python3.1").symlink_to(sys.executable)
    done = start(a_plugin(tmp_path, "3.1"), path=f"{tmp_path}:{os.environ['PATH']}")
    assert done.returncode == 1
    assert "needs CPython 3.1" in done.stderr


def test_equal_content_is_packed_into_equal_bytes(tmp_path: Path) -> None:
    archives = []
    for name in ("a", "b"):
        a_plugin(tmp_path / name, THIS)
        os.utime(tmp_path / name / COMMAND, (1, len(archives)))
        archives.append(tmp_path / f"{name}.tar.gz")
        pack(tmp_path / name, archives[-1])
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as packed:
        assert packed.getmember(COMMAND).mode & 0o111
        assert f"{LIBRARIES}/ullage/cli/main.py" in packed.getnames()


def test_krew_finds_an_archive_for_each_platform_by_its_checksum(tmp_path: Path) -> None:
    archives = {name: tmp_path / archive_name("1.2.3", name) for name in WHEEL_MACHINES}
    for name, path in archives.items():
        path.write_text(name, encoding="utf-8")
    template = "https://example.org/releases/v{version}/{file}"
    body = yaml.safe_load(manifest("1.2.3", template, archives))
    assert body["metadata"]["name"] == "ullage"  # kubectl ullage
    assert body["spec"]["version"] == "v1.2.3"
    assert f"python{BASE_PYTHON}" in body["spec"]["caveats"]
    for entry in body["spec"]["platforms"]:
        arch = entry["selector"]["matchLabels"]["arch"]
        assert entry["uri"] == f"https://example.org/releases/v1.2.3/{archives[arch].name}"
        assert entry["sha256"] == hashlib.sha256(arch.encode()).hexdigest()
        assert entry["bin"] == COMMAND
    assert len(body["spec"]["platforms"]) == 2


@pytest.mark.parametrize("text", ["example.org/{file}", "https://example.org/", "{file}"])
def test_a_template_that_gives_no_address_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"\{version\}/\{file\}"):
        template_of_addresses(text)


def wheel_tags(architecture: str, glibc: int) -> set[str]:
    words = pip_platform(architecture, glibc)
    return {words[at + 1] for at, word in enumerate(words) if word == "--platform"}


@pytest.mark.parametrize("architecture", WHEEL_MACHINES)
def test_wheels_are_chosen_for_the_platform_and_no_newer_glibc(architecture: str) -> None:
    tags = wheel_tags(architecture, GLIBC)
    machine = WHEEL_MACHINES[architecture]
    assert all(tag.endswith(f"_{machine}") for tag in tags)
    assert {f"manylinux_2_17_{machine}", f"manylinux2014_{machine}"} <= tags
    assert f"manylinux_2_{GLIBC + 1}_{machine}" not in tags
    assert wheel_tags(architecture, BASE_GLIBC) > tags


def test_images_of_another_machine_need_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr("demo.images._emulated", lambda _: False)
    with pytest.raises(SystemExit, match="qemu-user-static"):
        build_all(Progress(), "arm64")
    with pytest.raises(SystemExit, match="choose among amd64, arm64"):
        build_all(Progress(), "riscv64")
