# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Events of profiles: only when what they mean changed, never because another window came in."""

from __future__ import annotations

from ullage.api.reasons import ConditionType, Reason
from ullage.cluster.records.profile import ProfileRecord
from ullage.cluster.records.status import Condition
from ullage.scheduling.model.plan import Emit, SetProfile


def profile_news(before: ProfileRecord, written: SetProfile) -> list[Emit]:
    """What to tell of this write: that values hold again or no longer, or differ from declared."""
    news: list[Emit] = []
    was = before.status.condition(ConditionType.FRESH)
    now = written.status.condition(ConditionType.FRESH)
    if was is not None and now is not None and _turned(was, now):
        rows = f"{len(written.status.step_time)} rows measured"
        text = now.message or f"what was measured counts from now on, {rows}"
        news.append(
            _profile_event(written, Reason.PROFILE_UPDATED, text, warning=now.status != "True")
        )
    conflict = written.status.condition(ConditionType.CONFLICTING)
    if conflict is not None and before.status.condition(ConditionType.CONFLICTING) is None:
        news.append(
            _profile_event(written, Reason.PROFILE_CONFLICT, conflict.message, warning=True)
        )
    return news


def _turned(was: Condition, now: Condition) -> bool:
    return (was.status, was.reason) != (now.status, now.reason)


def _profile_event(written: SetProfile, reason: Reason, text: str, *, warning: bool) -> Emit:
    return Emit(
        target=written.target, warning=warning, epoch=written.epoch, reason=reason, text=text
    )
