# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The finalizer that holds an object until its ordered end, and the kinds that may have it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from ullage.api.readers import WireError, section
from ullage.api.times import seconds
from ullage.ports import (
    CAPACITY_POOL,
    INFERENCE_DEPLOYMENT,
    TRAINING_JOB,
    TUNING_JOB,
    JsonObject,
    Kind,
)

FINALIZER: Final = "ullage.dev/life"
ORPHAN: Final = "orphan"
"""Finalizer of a deletion that orphans the object's children."""
MOST: Final = 1_000
"""Maximum objects of a kind with ordered ends; the ends of others are unordered."""
MOST_OF_NAMESPACE: Final = 200
KINDS_HELD: Final[Mapping[Kind, float]] = {
    INFERENCE_DEPLOYMENT: 120.0,
    TRAINING_JOB: 120.0,
    TUNING_JOB: 60.0,
    CAPACITY_POOL: 900.0,
}
"""Seconds after the deletion until the wait for an ordered end is abandoned. Roles, the policy for
the operator, the hook of an uninstall and the doctor follow these kinds."""


def finalizers_of(item: JsonObject) -> list[object]:
    """The finalizers of an object, in their order."""
    finalizers = section(item, "metadata").get("finalizers")
    return list(finalizers) if isinstance(finalizers, list) else []


def deleted_at(metadata: JsonObject) -> float:
    """Time of an object's deletion, seconds since the epoch; infinity = it has no valid time.

    A wait that begins then, or now if that is earlier, is neither endless nor too short.
    """
    try:
        created = seconds(metadata.get("creationTimestamp"), "creationTimestamp")
        deleted = seconds(metadata.get("deletionTimestamp"), "deletionTimestamp")
    except WireError:
        return math.inf
    return deleted if deleted > 0 and deleted >= created else math.inf
