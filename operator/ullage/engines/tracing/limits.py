# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of a trace, and the error of one that exceeds them or is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ullage.api.reasons import Reason

MIB: Final = 2**20


class TraceError(ValueError):
    """The trace has no summary: ``reason`` is the kind of the fault, the text says where it is."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def too_large(text: str) -> TraceError:
    """An error of a trace that exceeds a limit."""
    return TraceError(Reason.TRACE_TOO_LARGE, f"{text}; trace fewer steps, without stacks")


def invalid(text: str) -> TraceError:
    """An error of a trace that is broken."""
    return TraceError(Reason.TRACE_INVALID, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLimits:
    """Limits of one trace; sizes are of the unpacked file."""

    file_bytes: int = 512 * MIB
    """The whole file."""
    ratio: int = 200
    """Bytes that one packed byte may become, of the file so far, after the first MiB."""
    event_bytes: int = MIB
    """One event."""
    head_bytes: int = 4 * MIB
    """Everything but the events."""
    events: int = 5_000_000
    depth: int = 64
    """Levels of nesting, where brackets are counted; the decoder alone takes some hundreds."""
    names: int = 100_000
    """Distinct names of events."""
    tracks: int = 10_000
    """Distinct threads and streams."""
