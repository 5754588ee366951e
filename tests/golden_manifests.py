# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the golden manifests of ``tests/data/crd``; README.md there explains their headers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent / "data" / "crd"
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Safe, and far quicker where the library was built with libyaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Golden:
    """One manifest and the verdict on it."""

    case: str
    valid: bool
    text: str
    kind: str
    by: str = ""
    says: str = ""
    rules: tuple[str, ...] = ()
    after: str = ""

    @property
    def body(self) -> dict[str, object]:
        return yaml.load(self.text, LOADER)  # type: ignore[no-any-return]


@cache
def goldens() -> dict[str, Golden]:
    """Every golden manifest by case."""
    found: dict[str, Golden] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in path.read_text(encoding="utf-8").split("---\n")[1:]:
            golden = _golden(document)
            assert golden.case not in found, f"two cases are called {golden.case}"
            found[golden.case] = golden
    return found


def _golden(document: str) -> Golden:
    lines = [line for line in document.splitlines() if line.startswith("# ")]
    header = dict(line[2:].split(": ", 1) for line in lines)
    valid = header.pop("expect") == "valid"
    rules = tuple(filter(None, header.pop("rules", "").split(", ")))
    kind = yaml.load(document, LOADER)["kind"]
    golden = Golden(valid=valid, rules=rules, text=document, kind=kind, **header)
    assert valid == (golden.by == golden.says == ""), f"{golden.case}: needs by and says"
    return golden
