# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Outcomes of a write beside the API's own errors, and the verdict on an error.

A single module decides if an error means "the state has changed", "the user must see this" or "this
process no longer leads"; the writer only acts on the verdict.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ullage.api.reasons import Reason
from ullage.ports import (
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    Kind,
    NotFound,
    Throttled,
    Unavailable,
)
from ullage.scheduling.model.plan import (
    Action,
    ApplyDeployment,
    ApplyGPUNode,
    ApplyRouter,
    ApplyService,
    CreatePod,
    CreateTrial,
    EvictPod,
    RegisterNode,
    TaintNode,
    UngatePod,
)


class Fenced(ApiError):
    """The Lease is no longer held: the request was not sent."""

    def __init__(self) -> None:
        super().__init__(0, "the lease is not held, nothing was sent", "Fenced")


class Refused(ApiError):
    """An error for the user: the text is reported on the owner, and the write waits for a back-off.

    Attributes:
        verdict: ``CreateRefused``, ``NameConflict``, ``NodeAffinityConflict`` or ``WriteRefused``.
        kind: Kind of the object that was not written.
        namespace: Its namespace.
        name: Its name.
    """

    def __init__(
        self, verdict: Reason, kind: str, namespace: str, name: str, cause: ApiError
    ) -> None:
        super().__init__(cause.status, cause.message, cause.reason)
        self.verdict = verdict
        self.kind = kind
        self.namespace = namespace
        self.name = name


class RequestVerdict(StrEnum):
    """Consequence of an error for its write."""

    MOVED_ON = "conflict"
    """The object has changed: plan again."""
    INVALID = "invalid"
    """The API refuses the content. It may be valid for the next state of the object."""
    LOST = "lost"
    """A newer leader has written."""
    REFUSED = "refused"
    """A create rejected by quota, policy or validation: reported to the user."""
    FORBIDDEN = "forbidden"
    """A permission is missing: report it, no hot loop."""
    BUDGET = "budget"
    """A disruption budget refuses the eviction: later."""
    THROTTLED = "throttled"
    """Throttled: all writes slow down."""
    AGAIN = "unavailable"
    """No answer or a server error: worth a retry."""
    BROKEN = "bad-request"
    """Our request was invalid."""
    FENCED = "fenced"
    """Not sent, since the Lease is lost."""


FAILED: Final = "failed"
"""Result, and reason, of an action that failed with an exception of ours, not of the API."""
WEBHOOK_SILENT: Final = "failed calling webhook"
"""Text in the API server's answer (500) where a mandatory admission webhook does not answer."""
CREATES = (CreatePod, CreateTrial, ApplyDeployment, ApplyRouter, ApplyService)
"""Actions whose refusal is reported as that of a create."""
PATCHES = (RegisterNode, TaintNode, UngatePod)
"""Actions that are sent as a JSON patch."""


def _names_the_epoch(message: str) -> bool:
    """True if a refusal is that of the rule on ``spec.epoch``, not of a slice's epoch."""
    return "spec.epoch" in message or "epoch must not" in message


def judge(action: Action, error: ApiError) -> RequestVerdict:
    """The verdict on the error of this action."""
    match error:
        case Fenced():
            return RequestVerdict.FENCED
        case Refused():
            return RequestVerdict.REFUSED
        case Throttled():
            budget = isinstance(action, EvictPod) and "disruption budget" in error.message
            return RequestVerdict.BUDGET if budget else RequestVerdict.THROTTLED
        case Unavailable():
            held = isinstance(action, CREATES) and WEBHOOK_SILENT in error.message
            return RequestVerdict.REFUSED if held else RequestVerdict.AGAIN
        case Invalid():
            if isinstance(action, ApplyGPUNode) and _names_the_epoch(error.message):
                return RequestVerdict.LOST
            if "metadata.uid" in error.message:
                return RequestVerdict.MOVED_ON
        case NotFound() | Conflict():
            return RequestVerdict.MOVED_ON
        case Forbidden() if error.status == 401:
            return RequestVerdict.FORBIDDEN
    if isinstance(action, CREATES) and isinstance(error, (BadRequest, Forbidden, Invalid)):
        return RequestVerdict.REFUSED
    if isinstance(error, Forbidden):
        return RequestVerdict.FORBIDDEN
    if isinstance(error, Invalid):  # of a JSON patch: a ``test`` in it failed
        return RequestVerdict.MOVED_ON if isinstance(action, PATCHES) else RequestVerdict.INVALID
    return RequestVerdict.BROKEN if isinstance(error, BadRequest) else RequestVerdict.MOVED_ON


def name_conflict(kind: Kind, namespace: str, name: str, holder: str) -> Refused:
    """The name of a child is taken by an object of another owner."""
    where = f"{namespace}/{name}" if namespace else name
    cause = Conflict(
        409,
        f"{kind.kind} {where} exists and belongs to {holder}; delete or rename it, or give the "
        "workload another name",
        "AlreadyExists",
    )
    return Refused(Reason.NAME_CONFLICT, kind.kind, namespace, name, cause)
