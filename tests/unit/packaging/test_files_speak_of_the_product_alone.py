# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every source file has its licence; none depends on where it was written or downloaded from."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from unit.packaging.repository import ROOT, files, text_of

SUFFIXES = {
    *(".py", ".pyi", ".sh", ".yaml", ".yml", ".toml", ".tmpl", ".tpl"),
    *(".go", ".proto", ".c"),
}
NAMES = {"Dockerfile", "Makefile", "run", ".importlinter"}
GENERATED = "kubelet/proto"
OWNER = "SPDX-FileCopyrightText: The Ullage Authors"
COPIED = "SPDX-FileCopyrightText: The Kubernetes Authors"
"""Of kubelet's interfaces and of what is generated from them."""
LICENCE = "SPDX-License-Identifier: Apache-2.0"

HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("anaconda", "org"),
        ("proxy", "golang", "org"),
        ("sum", "golang", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("docker", "io"),
        ("docker", "com"),
        ("ghcr", "io"),
        ("quay", "io"),
        ("gcr", "io"),
        ("registry", "k8s", "io"),
        ("mcr", "microsoft", "com"),
        ("nvcr", "io"),
        ("deb", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("crates", "io"),
    )
]
HOST = re.compile(rf"(?<![\w-])(?:[\w-]+\.)*(?:{'|'.join(map(re.escape, HOSTS))})(?![\w-])")
MACHINE_PATH = re.compile(r"(?<![\w.~}/-])/(?:work|root|Users|home/[a-z_][\w-]+)/[\w.]")
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b|NotImplemented" + "Error")


def _sources() -> list[Path]:
    return [path for path in files() if path.suffix in SUFFIXES or path.name in NAMES]


def _found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:80]}"
        for path in files()
        if path.suffix != ".sum" and GENERATED not in path.as_posix()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_every_source_file_begins_with_its_licence() -> None:
    sources = _sources()
    assert len(sources) > 300
    without = []
    for path in sources:
        head = [line.strip("#/* ") for line in text_of(path).splitlines()[:5]]
        owners = {OWNER, COPIED} if GENERATED in path.as_posix() else {OWNER}
        if not any(a in owners and b == LICENCE for a, b in pairwise(head)):
            without.append(str(path.relative_to(ROOT)))
    assert without == []


@pytest.mark.slow
def test_no_file_names_a_package_registry() -> None:
    assert _found(HOST) == []


def test_no_file_names_a_folder_of_the_machine_it_was_written_on() -> None:
    assert _found(MACHINE_PATH) == []


@pytest.mark.slow
def test_nothing_is_marked_as_unfinished() -> None:
    assert _found(UNFINISHED) == []


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (HOST, "pip install from files.{}/x".format(".".join(("python" + "hosted", "org"))), True),
        (HOST, "image: {}/library/x".format(".".join(("docker", "io"))), True),
        (HOST, "k8s.io/api golang.org/x/sys", False),
        (MACHINE_PATH, "see /{}/main/x.py".format("work"), True),
        (MACHINE_PATH, 'open("/{}/someone/x")'.format("home"), True),
        (
            MACHINE_PATH,
            "https://example.org/{}/x, run/{}/x, /var/lib/ullage".format("work", "root"),
            False,
        ),
        (UNFINISHED, "# {}: later".format("TO" + "DO"), True),
        (UNFINISHED, "todos", False),
    ],
)
def test_the_patterns_find_what_they_should(
    pattern: re.Pattern[str], text: str, expected: bool
) -> None:
    assert bool(pattern.search(text)) is expected


def test_the_product_is_under_the_apache_licence() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
