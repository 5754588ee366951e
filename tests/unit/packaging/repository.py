# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The repository as tests of its files see it: what git would take, and the project's settings."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pathspec

ROOT: Final = Path(__file__).resolve().parents[3]
PACKAGES: Final = {
    "ullage": ROOT / "operator" / "ullage",
    "ullage_simulate": ROOT / "operator" / "ullage_simulate",
    "ullage_katib": ROOT / "operator" / "ullage_katib",
    "ullage_node": ROOT / "deviceplugin" / "ullage_node",
    "ullage_run": ROOT / "runtime" / "ullage_run",
    "ullage_coordinator": ROOT / "runtime" / "ullage_coordinator",
    "ullage_router": ROOT / "runtime" / "ullage_router",
}
MODULE_OF: Final = {
    "grpcio": "grpc",
    "nvidia-ml-py": "pynvml",
    "protobuf": "google",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
"""Where the module's name is not the distribution's."""


def project() -> Mapping[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def distributions(extra: str) -> dict[str, str]:
    """Distributions of an extra, lower case -> the whole requirement."""
    extras = project()["optional-dependencies"]
    names: dict[str, str] = {}
    for requirement in extras[extra]:
        own = re.fullmatch(r"ullage\[(.*)\]", requirement)
        if own:
            for inner in own[1].split(","):
                names |= distributions(inner)
        else:
            names[re.split(r"[<>=!~\[; ]", requirement, maxsplit=1)[0].lower()] = requirement
    return names


def modules(extra: str) -> set[str]:
    """Top-level modules that an extra brings."""
    return {MODULE_OF.get(name, name.replace("-", "_")) for name in distributions(extra)}


@cache
def files() -> tuple[Path, ...]:
    """Every file that belongs to the repository, sorted."""
    return tuple(sorted(_walk(ROOT, [])))


def _walk(folder: Path, above: list[tuple[Path, pathspec.PathSpec]]) -> Iterator[Path]:
    ignore = folder / ".gitignore"
    rules = list(above)
    if ignore.is_file():
        lines = ignore.read_text(encoding="utf-8").splitlines()
        rules.append((folder, pathspec.GitIgnoreSpec.from_lines(lines)))
    for path in folder.iterdir():
        name = "/" if path.is_dir() else ""
        ignored = any(
            spec.match_file(path.relative_to(where).as_posix() + name) for where, spec in rules
        )
        if ignored or path.name == ".git" or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path, rules)
        else:
            yield path


def text_of(path: Path) -> str:
    """Content of a text file; empty = it is none."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return ""
