# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Says from the graph of a loss whether it is a mean over the samples of a batch.

Such a loss may be weighted by the number of samples: the weighted mean over ranks is then the mean
over the global batch, however that was divided. Terms without data (a penalty on weights) keep
their value, as the weights' mean is 1. What the graph does not show is refused.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from ullage.api.rebalancing import EvenReason

LINEAR: Final = frozenset(
    f"{name}Backward{number}"
    for name in ("Add", "Sub", "Mul", "Div", "Neg", "ToCopy", "Clone", "Alias", "View", "Squeeze")
    for number in (0, 1)
)
"""Operations that scale or add scalars."""
SINK: Final = "_DDPSinkBackward"
"""What DDP puts behind the outputs of a model: the edge of each output has its number."""
MEANS: Final = frozenset(
    f"{name}Backward0"
    for name in (
        "NllLoss",
        "NllLoss2D",
        "MseLoss",
        "SmoothL1Loss",
        "HuberLoss",
        "BinaryCrossEntropy",
        "BinaryCrossEntropyWithLogits",
        "SoftMarginLoss",
        "MultiMarginLoss",
        "MultilabelMarginLoss",
    )
)
"""Losses that save how they are reduced."""
REDUCED_BY_MEAN: Final = 1
REDUCED_BY_SUM: Final = 2
"""Both of ``at::Reduction``."""
OF_WEIGHTS: Final = frozenset(
    ("PowBackward0", "AbsBackward0", "MulBackward0", "SumBackward0", "LinalgVectorNormBackward0")
)
"""What a penalty on weights is made of."""
RESHAPED: Final = frozenset(
    f"{name}Backward0"
    for name in ("T", "Transpose", "Permute", "ToCopy", "View", "UnsafeView", "Clone")
) | {"UnsqueezeBackward0", "ExpandBackward0"}
"""What may stand between a weight and its product."""
PRODUCTS: Final = {
    "MmBackward0": ("_saved_self_sym_sizes", "_saved_mat2_sym_sizes", 0, 1),
    "AddmmBackward0": ("_saved_mat1_sym_sizes", "_saved_mat2_sym_sizes", 1, 2),
}
"""Products of two matrices: where their sizes are saved, and their places among the inputs."""
DISTANCES: Final = frozenset(("CdistBackward0", "EuclideanDistBackward0", "PdistBackward0"))
LOSS_NODES_MOST: Final = 64
"""Nodes from the loss to its means; more are not followed."""
DEEP_NODES_MOST: Final = 96
"""Nodes behind them among which products of samples are looked for."""


def uneven_reason(loss: Any, rows: int, world: int, *, summed: bool = False) -> EvenReason:
    """The reason why batches of a loss cannot be divided unevenly; ``NONE`` if they can.

    Args:
        loss: A tensor that a backward pass begins with, before that.
        rows: Samples in the batch of this rank.
        world: Number of ranks.
        summed: The program says that the loss is a sum over samples, divided by a number that is
            the same on all ranks; such a loss needs no weight.
    """
    root = getattr(loss, "grad_fn", None)
    if root is None or loss.numel() != 1:
        return EvenReason.LOSS_NOT_A_MEAN
    nodes, means = [(root, loss.output_nr)], []
    for _ in range(LOSS_NODES_MOST):
        if not nodes:
            break
        node, output = nodes.pop()
        name = type(node).__name__
        inputs = [edge for edge in node.next_functions if edge[0] is not None]
        if name == SINK:
            nodes.append(node.next_functions[output])
        elif name in LINEAR:
            if name.startswith(("Mul", "Div")) and len(inputs) > 1:
                return EvenReason.LOSS_NOT_A_MEAN  # a product or a ratio of two results
            nodes += inputs
        elif name in MEANS:
            by_sum = getattr(node, "_saved_reduction", None) == REDUCED_BY_SUM
            if not (by_sum if summed else _is_plain_mean(node)):
                return EvenReason.LOSS_NOT_A_MEAN
            means.append(node)
        elif name == ("SumBackward0" if summed else "MeanBackward0"):
            means.append(node)
        elif name != "AccumulateGrad" and not _of_weights_alone(node):
            return EvenReason.LOSS_NOT_A_MEAN
    if nodes or not means:
        return EvenReason.LOSS_NOT_A_MEAN
    if _compares_samples(means, rows, world):
        return EvenReason.IN_BATCH_LOSS
    return EvenReason.NONE


def _is_plain_mean(node: Any) -> bool:
    """True if every element counts alike."""
    if getattr(node, "_saved_reduction", None) != REDUCED_BY_MEAN:
        return False
    if getattr(node, "_saved_weight", None) is not None:
        return False
    counted = getattr(node, "_saved_total_weight", None)
    # of targets that are ignored the total is less than their number
    return counted is None or float(counted) == node._saved_target.numel()


def _of_weights_alone(node: Any) -> bool:
    """True if a node is a sum or norm of weights, without data."""
    nodes = [node]
    for _ in range(LOSS_NODES_MOST):
        if not nodes:
            return True
        inner = nodes.pop()
        name = type(inner).__name__
        if name == "AccumulateGrad":
            continue
        if name not in OF_WEIGHTS:
            return False
        nodes += [behind for behind, _ in inner.next_functions if behind is not None]
    return False


def _compares_samples(means: list[Any], rows: int, world: int) -> bool:
    """True if, close to the loss, samples of the batch are multiplied with each other."""
    widths = {rows, 2 * rows, world * rows, 2 * world * rows}
    nodes, seen = deque(means), set(means)
    for _ in range(DEEP_NODES_MOST):
        if not nodes:
            break
        node = nodes.popleft()
        name = type(node).__name__
        if name in DISTANCES:
            return True
        if name in PRODUCTS:
            left, right, first, second = PRODUCTS[name]
            shape = (getattr(node, left)[0], getattr(node, right)[1])
            if shape[0] in widths and shape[1] in widths:
                inputs = [inner for inner, _ in node.next_functions]
                if not (_is_weight(inputs[first]) or _is_weight(inputs[second])):
                    return True
        for inner, _ in node.next_functions:
            if inner is not None and inner not in seen:
                seen.add(inner)
                nodes.append(inner)
    return False


def _is_weight(node: Any) -> bool:
    for _ in range(len(RESHAPED)):
        if type(node).__name__ == "AccumulateGrad":
            return True
        if node is None or type(node).__name__ not in RESHAPED:
            return False
        node = node.next_functions[0][0]
    return False
