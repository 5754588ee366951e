# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two decisions are the same only where every member sits where it sat."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import a_job, a_pod, a_slice, gpu
from ullage.api.reasons import Reason
from ullage.cluster.records.status import RefusalLine
from ullage.scheduling.placement.predicted_figures import Part
from ullage.scheduling.status.decisions import Ruling, chosen_text

MEMBERS = 8


def parts(moved: int = -1) -> list[Part]:
    """A gang of eight; one of them on another device."""
    job = a_job().gang(MEMBERS).build()
    found = []
    for rank in range(MEMBERS):
        pod = a_pod(f"train-{rank}", owner=job)
        node = f"node-{rank + 20 * (rank == moved)}"
        wanted = a_slice(pod, device=gpu(node, 0), percent=50)
        found.append(Part(pod.uid, pod.name, node, wanted, None))
    return found


RULING = Ruling(reason=Reason.PLACED, text=lambda: "", parts=parts())


@pytest.mark.parametrize("rank", range(MEMBERS))
def test_each_member_counts(rank: int) -> None:
    moved = replace(RULING, parts=parts(moved=rank))
    assert moved.identity != RULING.identity
    if rank >= 3:
        assert chosen_text(moved.parts) == chosen_text(RULING.parts)  # no text tells


def test_what_else_is_decided_counts_and_words_do_not() -> None:
    line = RefusalLine(reason=Reason.NO_CAPACITY, devices=1, nearest="a", message="b")
    others = [
        replace(RULING, reason=Reason.NO_ROOM_TO_SURGE),
        replace(RULING, runner_up="node-9/x 50 %"),
        replace(RULING, alone=True),
        replace(RULING, lines=(line,)),
    ]
    assert len({one.identity for one in (RULING, *others)}) == 5
    assert replace(RULING, text=lambda: "other words").identity == RULING.identity
    retold = replace(line, devices=7, message="c")
    assert replace(RULING, lines=(retold,)).identity == others[-1].identity
