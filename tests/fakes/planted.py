# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Plants an exception in any function of a decision that looks at one workload."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import TypeVar

from ullage import scheduling
from ullage.cluster.records.pod import PodRecord
from ullage.cluster.records.workload import WorkloadRecord

Result = TypeVar("Result")
_ROOT = str(Path(next(iter(scheduling.__path__))))


class Planted(ValueError):
    """What was planted."""


def functions_given(uid: str, run: Callable[[], object]) -> list[CodeType]:
    """Functions of decisions that are given a workload, or something of it, while this runs."""
    found: dict[CodeType, None] = {}

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_ROOT) and _given(frame, uid):
            found[frame.f_code] = None

    _traced(look, run)
    return list(found)


def planted(uid: str, code: CodeType, run: Callable[[], Result]) -> Result:
    """The result of a run in which a function raises whenever it is given this workload."""

    def look(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is code and _given(frame, uid):
            raise Planted(code.co_qualname)

    return _traced(look, run)


def _traced(look: Callable[[FrameType, str, object], None], run: Callable[[], Result]) -> Result:
    before = sys.gettrace()
    sys.settrace(look)
    try:
        return run()
    finally:
        sys.settrace(before)


def _given(frame: FrameType, uid: str) -> bool:
    code = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    values = [frame.f_locals.get(name) for name in names]
    if any(isinstance(one, WorkloadRecord) and one.aside for one in values):
        return False
    return any(_about(one, uid) for one in values)


def _about(value: object, uid: str) -> bool:
    match value:
        case WorkloadRecord():
            return value.ref.uid == uid
        case PodRecord():
            return value.owner.uid == uid
        case str():
            return value == uid
    held = (getattr(value, name, None) for name in ("pod", "workload", "job"))
    return any(isinstance(one, PodRecord | WorkloadRecord) and _about(one, uid) for one in held)
