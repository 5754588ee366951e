# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How many members an elastic gang may have, and why it has its current number."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from ullage.api.base import Model
from ullage.api.rules import (
    ELASTICITY_ORDER,
    FLUSH_NEEDS_TIERS,
    MEMBERSHIP_NEEDS_BOUNDS,
    RELIABLE_WITHIN_BOUNDS,
    TIERS_NEED_BACKUP,
    TIERS_NEED_BOUNDS,
    TIERS_NEED_RELIABLE,
    validations,
)
from ullage.api.tiers import Backup
from ullage.api.words import Membership, OnNotice, Tiers

MAX_REPLICAS = 4096

Members = Annotated[int, Field(ge=1, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})]


class Elasticity(Model):
    """Bounds of a gang that may change its size at a checkpoint."""

    model_config = ConfigDict(
        json_schema_extra=validations(
            ELASTICITY_ORDER,
            MEMBERSHIP_NEEDS_BOUNDS,
            TIERS_NEED_BOUNDS,
            TIERS_NEED_RELIABLE,
            RELIABLE_WITHIN_BOUNDS,
            TIERS_NEED_BACKUP,
            FLUSH_NEEDS_TIERS,
        )
    )

    min_replicas: Members
    """Minimum members that the job can train with; it waits until there is room for them."""
    max_replicas: Members
    """Maximum members; the job takes as many as there is room for, and grows when room lasts."""
    on_notice: OnNotice = OnNotice.CHECKPOINT
    """When a machine will be taken away. `Checkpoint`: the job saves its state at once and goes on
    without that machine; `Ignore`: it runs on until the machine is gone; `Flush`, in tiers: the
    member on that machine hands over what it has, and no step is lost; the job is not started where
    noticeSeconds of its CapacityPools is too short for that."""
    membership: Membership = Membership.RESTART
    """How members come and go. `Restart`: another number of them comes by a restart of all at a
    checkpoint; `InPlace`: the program itself goes on when a member is lost and when one joins
    (elastic torchrun; JAX only with code of its own), so the others' pods are never stopped for it.
    In tiers it is always so."""
    reliable_replicas: Annotated[
        int, Field(ge=0, le=MAX_REPLICAS, json_schema_extra={"format": "int32"})
    ] = 0
    """In tiers: so many members, those of the lowest ranks, run on machines of CapacityPools that
    are not taken away (OnDemand, Reserved), where there are such pools."""
    tiers: Tiers = Tiers.DISABLED
    """Members own the state of the job in shards, and a lead that the operator starts keeps a copy
    of them: a lost member costs at most backup.maxLagSteps, and no other member restarts. The
    program must use ullage_run.group. `Auto`: by the ratio of transient to reliable members;
    `Stage1` to `Stage3` fix it."""
    backup: Backup | None = None
    """The copy of the state; needed in tiers."""
