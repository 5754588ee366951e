# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Check that deleted objects end: those that wait for the operator, and since when."""

from __future__ import annotations

from typing import Final

from ullage.api.contract import CheckState, JsonObject, NodeCheck, section
from ullage.api.times import moment_of
from ullage.cluster.values.lives import FINALIZER, KINDS_HELD, finalizers_of
from ullage.ports import ApiError, ClusterPort, Selector

NAME: Final = "deletions"
LATE: Final = 2.0
"""Times as long as the operator holds an object, if it runs."""
NAMED: Final = 5


async def deletions_end(cluster: ClusterPort, now: float) -> NodeCheck:
    """Check that each object that is deleted and held back by the operator ends in time.

    Args:
        cluster: With the user's own credentials.
        now: Seconds since the epoch.
    """
    late: list[str] = []
    try:
        for kind, most_s in KINDS_HELD.items():
            async for page in cluster.list_paged(kind, Selector()):
                messages = (_late(item, kind.plural, now, LATE * most_s) for item in page.items)
                late += [text for text in messages if text]
    except ApiError as error:
        message = f"what is being deleted cannot be listed: {error.message}"
        return NodeCheck(name=NAME, state=CheckState.UNCONFIRMED, message=message)
    if not late:
        return NodeCheck(name=NAME, state=CheckState.OK, message="none waits for the operator")
    more = f" and {len(late) - NAMED} more" if len(late) > NAMED else ""
    return NodeCheck(
        name=NAME,
        state=CheckState.FAILED,
        message=f"held back by {FINALIZER}: {', '.join(sorted(late)[:NAMED])}{more}",
        remedy="does the operator run and lead? Without one, take the finalizer away by hand:"
        " docs/operations.md, Uninstall",
    )


def _late(item: JsonObject, plural: str, now: float, late_s: float) -> str:
    """An object that should have ended, in words; empty = it is not one."""
    metadata = section(item, "metadata")
    deleted = metadata.get("deletionTimestamp")
    if FINALIZER not in finalizers_of(item) or not deleted:
        return ""
    since_s = now - moment_of(str(deleted), "deletionTimestamp")
    if since_s < late_s:
        return ""
    where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return f"{plural} {where} for {since_s / 60:.0f} min"
