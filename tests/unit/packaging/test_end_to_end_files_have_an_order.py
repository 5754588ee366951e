# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Workers of the end-to-end tests take files that exist, in an order, on clusters of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from e2e.worker import EMPTY_CLUSTER, HOME, LONGEST, begin_early, home_of

E2E = Path(__file__).parents[2] / "e2e"
LONGEST_SOCKET = "/nodes/node-12/containerd.sock.ttrpc"
MOST_BYTES = 107
"""Of the path of a unix socket."""


def test_the_longest_files_exist_and_come_first() -> None:
    files = [path.name for path in E2E.glob("test_*.py")]
    assert set(LONGEST) <= set(files)
    assert len(set(LONGEST)) == len(LONGEST)
    assert sorted(files, key=begin_early)[: len(LONGEST)] == list(LONGEST)
    assert LONGEST[0] == EMPTY_CLUSTER, "no other file has installed anything"


def test_each_worker_has_a_home_with_room_for_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(HOME, raising=False)
    homes = {home_of(f"gw{number}") for number in range(100)}
    assert len(homes) == 100
    assert all(len(home + LONGEST_SOCKET) <= MOST_BYTES for home in homes)
    monkeypatch.setenv(HOME, "/elsewhere")
    assert home_of("gw0") == "/elsewhere-gw0"
