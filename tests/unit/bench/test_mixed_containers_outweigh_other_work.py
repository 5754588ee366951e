# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from bench.mixed_weight import TIMES, NoWeight, outweigh


@pytest.mark.parametrize(
    ("file", "default"),
    [
        ("cpu/local/cpu.shares", 1024),
        ("cpu,cpuacct/local/cpu.shares", 1024),
        ("local/cpu.weight", 100),
    ],
)
def test_the_group_above_all_nodes_gets_the_weight(tmp_path: Path, file: str, default: int) -> None:
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text(str(default))
    assert outweigh("/local/node-1", tmp_path) == default * TIMES
    assert (tmp_path / file).read_text() == str(default * TIMES)


def test_a_group_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoWeight, match="local"):
        outweigh("local/node-1", tmp_path)
