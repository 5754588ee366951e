# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Encodes requests in the replicas' protocol.

Queued requests are already encoded so: HTTP and gRPC clients share a queue and a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ullage_router import infer_messages, open_inference
from ullage_router.open_inference import InferRequest, QueuedRequest
from ullage_router.settings import RouterSettings
from ullage_run.binary_tensors import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaWire:
    """Joins the requests of a batch, and splits its answer; checks that of a single request."""

    join: Callable[[Sequence[QueuedRequest], str], Body]
    part: Callable[[bytes, int, Sequence[InferRequest], str], list[Body | None]]
    check: Callable[[bytes, int], None]


JSON_WIRE: Final = ReplicaWire(
    join=open_inference.join, part=open_inference.part, check=open_inference.check
)
GRPC_WIRE: Final = ReplicaWire(
    join=infer_messages.join, part=infer_messages.part, check=infer_messages.check
)


def wire_of(settings: RouterSettings) -> ReplicaWire:
    """The wire of these replicas."""
    return GRPC_WIRE if settings.over_grpc else JSON_WIRE
