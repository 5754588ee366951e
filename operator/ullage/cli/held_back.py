# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Check that deleted objects end in order, and name those that wait for the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from ullage.api.checks import CheckState, NodeCheck
from ullage.api.readers import JsonObject, section, text
from ullage.api.reasons import Reason
from ullage.cluster.values.lives import (
    FINALIZER,
    KINDS_HELD,
    MOST,
    MOST_OF_NAMESPACE,
    deleted_at,
    finalizers_of,
)
from ullage.ports import ApiError, ClusterPort, Kind, Selector

NAME: Final = "deletions"
ORDER: Final = "ends in order"
LATE: Final = 2.0
"""Multiple of the longest time for which a running operator delays an object."""
NAMED: Final = 5


async def deletions_end(cluster: ClusterPort, now: float) -> tuple[NodeCheck, ...]:
    """Check that each deleted object ends in time, and that future ends will be ordered.

    Args:
        cluster: Cluster with the user's own credentials.
        now: Seconds since the epoch.
    """
    late: list[str] = []
    full: list[str] = []
    try:
        for kind, most_s in KINDS_HELD.items():
            held, others = Counter[str](), Counter[str]()
            async for page in cluster.list_paged(kind, Selector()):
                for item in page.items:
                    late += _late(item, kind.plural, now, LATE * most_s)
                    namespace = text(section(item, "metadata"), "namespace", "")
                    (held if FINALIZER in finalizers_of(item) else others)[namespace] += 1
            full += _full(kind, held, others)
    except ApiError as error:
        message = f"what is being deleted cannot be listed: {error.message}"
        return (NodeCheck(name=NAME, state=CheckState.UNCONFIRMED, message=message),)
    return (_deletions(late), _order(full))


def _deletions(late: Sequence[str]) -> NodeCheck:
    if not late:
        return NodeCheck(name=NAME, state=CheckState.OK, message="none waits for the operator")
    return NodeCheck(
        name=NAME,
        state=CheckState.FAILED,
        message=f"held back by {FINALIZER}: {_named(late)}",
        remedy="does the operator run and lead? Without one, take the finalizer away by hand:"
        " docs/operations.md, Uninstall",
    )


def _order(full: Sequence[str]) -> NodeCheck:
    if not full:
        return NodeCheck(name=ORDER, state=CheckState.OK, message="no kind has too many objects")
    return NodeCheck(
        name=ORDER,
        state=CheckState.UNCONFIRMED,
        message=f"as many as may end in order; others end in any order: {_named(full)}",
        remedy=f"`kubectl get events -A --field-selector reason={Reason.ENDS_UNORDERED}` names"
        " them; delete what is not needed, or use more namespaces",
    )


def _full(kind: Kind, held: Counter[str], others: Counter[str]) -> Iterator[str]:
    """Kinds or namespaces at the bound."""
    # each CapacityPool has a timer, with or without a finalizer
    cared_for = held.total() if kind.namespaced else min(MOST, held.total() + others.total())
    if cared_for >= MOST and (more := held.total() + others.total() - cared_for):
        yield f"{kind.plural} ({cared_for} and {more} others)"
    for namespace, number in held.items():
        if namespace and number >= MOST_OF_NAMESPACE and others[namespace]:
            yield f"{kind.plural} of {namespace} ({number} and {others[namespace]} others)"


def _named(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return f"{', '.join(sorted(texts)[:NAMED])}{more}"


def _late(item: JsonObject, plural: str, now: float, late_s: float) -> list[str]:
    """Text of an object that should have ended, if it is one."""
    metadata = section(item, "metadata")
    since_s = now - deleted_at(metadata)
    if FINALIZER not in finalizers_of(item) or since_s < late_s:
        return []
    where = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return [f"{plural} {where} for {since_s / 60:.0f} min"]
