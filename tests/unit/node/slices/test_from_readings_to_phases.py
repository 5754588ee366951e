# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage_node.model.devices import Attachment, AttachState, ContainerKey
from ullage_node.model.slices import SliceRefusal
from ullage_node.slices.observer import Observer, PhaseChange

KEY = ContainerKey(pod_uid="uid-1", container="main")


def feed(
    phase: SlicePhase, *readings: tuple[float, AttachState], message: str = ""
) -> PhaseChange | None:
    """The verdict on the last of some readings."""
    observer = Observer()
    change = None
    for moment, state in readings:
        change = observer.judge(KEY, phase, Attachment(state=state, message=message), moment)
    return change


def test_verified_limits_attach() -> None:
    change = feed(SlicePhase.PREPARED, (0, AttachState.ENFORCED))
    assert change == PhaseChange(phase=SlicePhase.ATTACHED, why=None)


def test_a_warning_stands_beside_attached() -> None:
    seen = Attachment(
        state=AttachState.ENFORCED, reason=Reason.CPU_LIMIT_BELOW_SHARE, message="200m < 400m"
    )
    change = Observer().judge(KEY, SlicePhase.PREPARED, seen, 0)
    assert change == PhaseChange(
        phase=SlicePhase.ATTACHED,
        why=SliceRefusal(reason=Reason.CPU_LIMIT_BELOW_SHARE, message="200m < 400m"),
    )


def test_one_reading_outside_the_limits_decides_nothing() -> None:
    assert feed(SlicePhase.ATTACHED, (0, AttachState.UNENFORCED)) is None


def test_two_in_a_row_fail() -> None:
    change = feed(
        SlicePhase.ATTACHED,
        (0, AttachState.UNENFORCED),
        (1, AttachState.UNENFORCED),
        message="no quota",
    )
    assert change == PhaseChange(
        phase=SlicePhase.FAILED, why=SliceRefusal(reason=Reason.UNENFORCED, message="no quota")
    )


@pytest.mark.parametrize(
    ("phase", "seconds", "fails"),
    [
        (SlicePhase.PREPARED, 9, False),
        (SlicePhase.PREPARED, 10, True),
        (SlicePhase.ATTACHED, 29, False),
        (SlicePhase.ATTACHED, 30, True),
    ],
)
def test_a_container_no_one_can_verify_fails_in_the_end(
    phase: SlicePhase, seconds: float, fails: bool
) -> None:
    change = feed(phase, (0, AttachState.UNVERIFIED), (seconds, AttachState.UNVERIFIED))
    assert (change is not None and change.phase is SlicePhase.FAILED) == fails


@pytest.mark.parametrize(
    ("phase", "seconds", "expected"),
    [
        (SlicePhase.ATTACHED, 4, None),
        (SlicePhase.ATTACHED, 5, SlicePhase.PREPARED),
        (SlicePhase.PREPARED, 500, None),
    ],
)
def test_a_container_without_a_process_is_waited_for(
    phase: SlicePhase, seconds: float, expected: SlicePhase | None
) -> None:
    change = feed(phase, (0, AttachState.ABSENT), (seconds, AttachState.ABSENT))
    assert (change.phase if change else None) == expected


def test_a_new_start_begins_from_nothing() -> None:
    observer = Observer()
    reading = Attachment(state=AttachState.UNENFORCED)
    observer.judge(KEY, SlicePhase.ATTACHED, reading, 0)
    observer.restart(KEY)
    assert observer.judge(KEY, SlicePhase.PREPARED, reading, 1) is None


def test_containers_that_are_gone_are_forgotten() -> None:
    observer = Observer()
    reading = Attachment(state=AttachState.UNENFORCED)
    observer.judge(KEY, SlicePhase.ATTACHED, reading, 0)
    observer.keep(())
    assert observer.judge(KEY, SlicePhase.ATTACHED, reading, 1) is None
