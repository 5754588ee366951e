# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Real containers to freeze, where this machine has a freezer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes.real_freezer import FreezerBench, roots
from ullage_node.guard.finder import FreezerKind


@pytest.fixture(params=list(FreezerKind), ids=lambda kind: kind.value)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FreezerBench]:
    """On each kind of freezer that this machine has."""
    yield from _bench(request.param, tmp_path)


@pytest.fixture
def one_bench(tmp_path: Path) -> Iterator[FreezerBench]:
    """On the kind of freezer that this machine would use."""
    yield from _bench(None, tmp_path)


def _bench(kind: FreezerKind | None, scratch: Path) -> Iterator[FreezerBench]:
    found = roots(scratch)
    chosen = kind or next(iter(found), None)
    if chosen not in found:
        pytest.skip(f"needs root and a writable {kind.value if kind else ''} hierarchy")
    bench = FreezerBench(found[chosen], scratch)
    try:
        yield bench
    finally:
        for pod in bench.pods:
            pod.close()
