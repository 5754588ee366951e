# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Requests of workloads for devices: whole ones, or a share of one."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, ClassVar, Final

from pydantic import Field

from ullage.api.base import ACCELERATOR_PATTERN, SET
from ullage.api.devices import GPUMode
from ullage.api.rules import (
    ACCELERATOR_KEY,
    LANE_MEMORY_POSITIVE,
    MEMORY_POSITIVE,
    ONE_FRACTION,
    OWN_TRUST_DOMAIN,
    SHARE_ORDER,
    SHARE_WITH_FRACTIONAL,
    validations,
)
from ullage.api.scalars import memory
from ullage.api.spec import Inside, Spec, Whole, is_word, listed, patterned
from ullage.api.words import Switching

Accelerator = Annotated[
    str,
    patterned(
        ACCELERATOR_PATTERN,
        "key of an accelerator",
        max_length=63,
        json_schema_extra=validations(ACCELERATOR_KEY),
    ),
]
Accelerators = Annotated[tuple[Accelerator, ...], listed(16, **SET)]
_DOMAIN: Final = r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"
DomainName = Annotated[
    str, patterned(_DOMAIN, "name of a trust domain, which holds no slash", max_length=63)
]
"""A trust domain, where the administrator grants it."""
TrustDomain = Annotated[
    str,
    Field(
        max_length=63,
        pattern=_DOMAIN,
        json_schema_extra=validations(OWN_TRUST_DOMAIN),
    ),
]
"""Absent means ``namespace/<namespace>``; the pattern forbids the slash, so that no one can type
another namespace's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share(Spec):
    """Part of a device, as a range: the least that the container needs, the most it can use."""

    rules: ClassVar = (SHARE_ORDER,)

    min_percent: Annotated[int, Whole(1, 100)]
    """Minimum percent of the device's compute; the workload waits until it is available."""
    max_percent: Annotated[int, Whole(1, 100)] = 100
    """Maximum percent that the container can use. The decision grants the largest whole percent in
    between that fits the device and its neighbours."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUMemory(Spec):
    """Device memory that the container may allocate."""

    limit_mib: Annotated[int, memory(MEMORY_POSITIVE), Field(alias="limit")]
    """Memory that the container may allocate, without the overhead of its context; for example
    `8Gi`."""


LaneQuantity = Annotated[int, memory(LANE_MEMORY_POSITIVE)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneMemory(Spec):
    """Memory of a container that takes turns with others at the boundaries of its steps."""

    persistent_mib: Annotated[LaneQuantity, Field(alias="persistent")]
    """Memory that stays between two steps: model, optimizer state, framework; for example
    `4Gi`."""
    ephemeral_mib: Annotated[LaneQuantity, Field(alias="ephemeral")]
    """Peak of one step above `persistent`, with the largest batch: activations and scratch. The
    container may allocate the sum of both."""
    cooperative: Annotated[
        bool, is_word(Switching.COOPERATIVE, Switching.CHECKPOINT), Field(alias="switching")
    ] = True
    """Whether the memory that stays may leave the device. `Cooperative`: never. `Checkpoint`: the
    node suspends the container while it does nothing and others need its memory, and resumes it at
    its next step, so that more programs share a device than it has memory for. Only devices whose
    node says so take it (`suspends` in the status of the GPUNode). Either way the program says
    itself where a step begins and ends (`ullage_run.lanes`)."""

    @property
    def kept_mib(self) -> int:
        """Memory of a device that it keeps, whatever others do, in MiB."""
        return self.persistent_mib if self.cooperative else 0

    @property
    def shared_mib(self) -> int:
        """Memory that others of its lane may have while it is idle, in MiB."""
        return self.ephemeral_mib + self.persistent_mib - self.kept_mib


@dataclass(frozen=True, slots=True, kw_only=True)
class GPURequest(Spec):
    """Devices of one replica."""

    rules: ClassVar = (SHARE_WITH_FRACTIONAL, ONE_FRACTION)

    mode: GPUMode = GPUMode.EXCLUSIVE
    """`Exclusive` gives whole devices, `Fractional` a share of one device."""
    count: Annotated[int, Whole(1, 16)] = 1
    """Number of devices of each replica; 1 with mode Fractional."""
    share: Share | None = None
    """The share to give; needed with mode Fractional, refused with Exclusive."""
    # 0 = in proportion to the share; of a lane the sum of both parts
    memory_mib: Annotated[
        int,
        Inside(
            item=GPUMemory,
            value=attrgetter("limit_mib"),
            entry=lambda mib: GPUMemory(limit_mib=mib),
        ),
        Field(alias="memory"),
    ] = 0
    """Device memory; without it a share gets memory in proportion to its percent."""
    lane: LaneMemory | None = None
    """The container shares a lane: it takes turns with others of its device, step by step. Only
    with mode Fractional, and instead of `memory`."""
