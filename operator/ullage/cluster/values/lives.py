# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What holds an object of a user back until its end is in order, and whose objects may be held."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ullage.api.contract import section
from ullage.ports import (
    CAPACITY_POOL,
    INFERENCE_DEPLOYMENT,
    TRAINING_JOB,
    TUNING_JOB,
    JsonObject,
    Kind,
)

FINALIZER: Final = "ullage.dev/life"
ANNOTATIONS: Final = "life.ullage.dev"
"""Prefix of the annotation that kopf writes to be told of an object again."""
ORPHAN: Final = "orphan"
"""Finalizer of a deletion whose author keeps what the object has made."""
KINDS_HELD: Final[Mapping[Kind, float]] = {
    INFERENCE_DEPLOYMENT: 120.0,
    TRAINING_JOB: 120.0,
    TUNING_JOB: 60.0,
    CAPACITY_POOL: 900.0,
}
"""Seconds after the deletion until what is not in order is left alone. Roles, the policy for the
operator, the hook of an uninstall and the doctor follow these kinds."""


def finalizers_of(item: JsonObject) -> list[object]:
    """The finalizers of an object, in their order."""
    stated = section(item, "metadata").get("finalizers")
    return list(stated) if isinstance(stated, list) else []
