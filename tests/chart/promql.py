# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a query reads, held against the reference page of our metrics."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from chart.rendered import ROOT

TARGET: Final = {"instance", "pod", "node"}
"""Labels that a scrape adds."""
ROW: Final = re.compile(r"^\| `((?:ullage|process)_[a-z0-9_]+)` \| (\w+) \| (.+?) \|", re.MULTILINE)
RECORD: Final = re.compile(r"\b\w+:ullage_[a-z0-9_]+:\w+\b")
"""The name of a recording rule; its labels come first."""
READ: Final = re.compile(r"((?:ullage|process)_[a-z0-9_]+)(?:\{([^}]*)\})?")
SERIES: Final = ("_bucket", "_sum", "_count")


def documented() -> dict[str, set[str]]:
    """Labels of every metric on the reference page; of histograms by series, too."""
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    found = {}
    for name, kind, said in ROW.findall(page):
        labels = set(re.findall(r"`(\w+)`", said))
        found[name] = labels
        if kind == "histogram":
            found |= {name + series: labels | {"le"} for series in SERIES}
    return found


def check(
    query: str,
    known: Mapping[str, set[str]],
    *,
    recorded: Collection[str] = (),
    shown: Collection[str] = (),
) -> None:
    """Assert that metrics and labels of a query exist.

    Args:
        query: PromQL.
        known: labels by metric, see :func:`documented`.
        recorded: names that recording rules give.
        shown: labels that are shown with the result.
    """
    rules = set(RECORD.findall(query))
    assert rules <= set(recorded)
    read = READ.findall(RECORD.sub("", query))
    for name, matchers in read:
        assert name in known, name
        asked = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", matchers))
        assert asked <= known[name] | TARGET, (name, asked)
    kept = {name.split(":")[0] for name in rules}
    labels = TARGET.union(kept, *(known[name] for name, _ in read))
    used = {
        label.strip()
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
        for label in group.split(",")
    }
    assert used | set(shown) <= labels, (used | set(shown)) - labels
