# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Policies for slow ranks of a job, and why a program keeps its even batches.

Standard library only: programs import it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from ullage.api import environment


class StragglerPolicy(StrEnum):
    """Policies for ranks that the others wait for."""

    DISABLED = "Disabled"
    OBSERVE = "Observe"
    REBALANCE = environment.REBALANCE


class EvenReason(StrEnum):
    """Reasons for which a program that may divide its batches unevenly does not.

    The record of a rank holds the position in this list, so new reasons come last.
    """

    NONE = ""
    DATA_NOT_DIVISIBLE = "DataNotDivisible"
    BATCH_NORM = "BatchNorm"
    LOSS_NOT_A_MEAN = "LossNotAMean"
    IN_BATCH_LOSS = "InBatchLoss"
    NOT_DATA_PARALLEL = "NotDataParallel"
    BATCH_NOT_RECOGNIZED = "BatchNotRecognized"
    FETCHED_AHEAD = "FetchedAhead"
    GATHERS_SAMPLES = "GathersSamples"
    RANKS_DIFFER = "RanksDiffer"
    NOT_TIMED = "NotTimed"
    HOOK_FAILED = "HookFailed"
    MODEL_SHARDED = "ModelSharded"

    @property
    def text(self) -> str:
        """The cause, and what the owner of the program can do."""
        return EVEN_TEXTS[self]

    @property
    def code(self) -> int:
        """Its number in a record."""
        return _ORDER.index(self)

    @classmethod
    def of_code(cls, code: int) -> EvenReason:
        """The reason with this number; a later version's unknown one is ``NONE``."""
        return _ORDER[code] if code < len(_ORDER) else cls.NONE


_ORDER: Final = tuple(EvenReason)
EVEN_TEXTS: Final = {
    EvenReason.NONE: "",
    EvenReason.DATA_NOT_DIVISIBLE: "batches can only be divided where a DataLoader reads a "
    "map-style dataset by a DistributedSampler in batches of a fixed size, in order",
    EvenReason.BATCH_NORM: "the model has BatchNorm, whose statistics depend on the size of a "
    "rank's batch; torch.nn.SyncBatchNorm.convert_sync_batchnorm makes it independent",
    EvenReason.LOSS_NOT_A_MEAN: "the loss is not seen to be a mean over the samples of the batch, "
    'so it cannot be weighted by their number; use reduction="mean" without class weights or '
    "ignored targets",
    EvenReason.IN_BATCH_LOSS: "the loss compares samples of a batch with each other, so it "
    "depends on which rank has them",
    EvenReason.NOT_DATA_PARALLEL: "gradients of the optimizer's parameters are not averaged by "
    "one DistributedDataParallel over all ranks that the sampler divides the data among",
    EvenReason.BATCH_NOT_RECOGNIZED: "the first dimension of the model's input is not that of "
    "the loader's batch, or no backward pass follows it",
    EvenReason.FETCHED_AHEAD: "the program takes batches from the loader before it needs them",
    EvenReason.GATHERS_SAMPLES: "the program gathers tensors of a batch from all ranks, which "
    "need the same size everywhere",
    EvenReason.RANKS_DIFFER: "the ranks do not read the same data in the same order, or not all "
    "of them have the hook",
    EvenReason.NOT_TIMED: "the time of a rank's own work is not known",
    EvenReason.HOOK_FAILED: "the hook failed in this program; its log has the error",
    EvenReason.MODEL_SHARDED: "weights are sharded over the ranks (FSDP2, tensor parallel), so "
    "each layer waits for all of them, and the time of a rank's own work is not known",
}
