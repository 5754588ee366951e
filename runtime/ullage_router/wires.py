# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""How requests of the protocol are written toward the replicas.

What waits is written so already: requests of HTTP and of gRPC clients share a queue and a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ullage_router import infer_messages, open_inference
from ullage_router.open_inference import Asked, InferRequest
from ullage_router.settings import Settings
from ullage_run.binary_tensors import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Joins the requests of a batch, and parts its answer; checks that of one that ran alone."""

    join: Callable[[Sequence[Asked], str], Body]
    part: Callable[[bytes, int, Sequence[InferRequest], str], list[Body | None]]
    check: Callable[[bytes, int], None]


JSON_WIRE: Final = Wire(
    join=open_inference.join, part=open_inference.part, check=open_inference.check
)
GRPC_WIRE: Final = Wire(
    join=infer_messages.join, part=infer_messages.part, check=infer_messages.check
)


def wire_of(settings: Settings) -> Wire:
    """The wire of these replicas."""
    return GRPC_WIRE if settings.over_grpc else JSON_WIRE
