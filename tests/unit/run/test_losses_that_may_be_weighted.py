# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Graphs of real losses, built by torch in one process.

``TORCH_PYTHON`` names an interpreter with torch where this one has none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

import ullage
import ullage_run

PYTHON: Final = os.environ.get("TORCH_PYTHON", sys.executable)
HAS_TORCH: Final = (
    subprocess.run(
        [PYTHON, "-c", "import importlib.util as u; exit(not u.find_spec('torch'))"], check=False
    ).returncode
    == 0
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed: losses are not built"),
]
PROGRAM: Final = """
import json, torch
from torch import nn
from torch.nn import functional as F
from ullage_run.loss_shape import uneven_reason
model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8))
x, y = torch.randn(8, 4), torch.arange(8) % 8
out = model(x)
image = out.reshape(8, 2, 2, 2)
weights = sum(p.pow(2).sum() for p in model.parameters())
unit = F.normalize(out, dim=1)
losses = {
    "cross entropy": F.cross_entropy(out, y),
    "of images": F.cross_entropy(image, torch.zeros(8, 2, 2).long()),
    "of tokens": F.cross_entropy(out.reshape(16, 4), torch.arange(16) % 4),
    "squares": F.mse_loss(out, torch.zeros(8, 8)),
    "absolute": F.l1_loss(out, torch.zeros(8, 8)),
    "smooth": F.smooth_l1_loss(out, torch.zeros(8, 8)),
    "binary": F.binary_cross_entropy_with_logits(out, torch.zeros(8, 8)),
    "of each sample": F.cross_entropy(out, y, reduction="none").mean(),
    "two losses": F.cross_entropy(out, y) + 0.1 * F.mse_loss(out, torch.zeros(8, 8)),
    "divided": F.cross_entropy(out, y) / 4,
    "scaled": F.cross_entropy(out, y) * torch.tensor(65536.0),
    "half": F.cross_entropy(out.bfloat16(), y),
    "penalty": F.cross_entropy(out, y) + 1e-3 * weights,
    "norm": F.cross_entropy(out, y) + model[0].weight.norm(),
    "sum": F.cross_entropy(out, y, reduction="sum"),
    "sum over number": F.cross_entropy(out, y, reduction="sum") / 8,
    "class weights": F.cross_entropy(out, y, weight=torch.arange(8.0)),
    "ignored": F.cross_entropy(out, torch.where(y == 2, -100, y)),
    "product": F.cross_entropy(out, y) * F.mse_loss(out, torch.zeros(8, 8)),
    "ratio": out.sum() / out.pow(2).sum(),
    "vector": out,
    "no graph": torch.zeros(()),
    "in batch": F.cross_entropy(unit @ unit.flip(1).T, y),
    "in batch, detached": F.cross_entropy(unit @ unit.detach().T / 0.1, y),
    "distances": torch.cdist(out, out).mean(),
}
reasons = {name: uneven_reason(loss, 8, 4).value for name, loss in losses.items()}
reasons["summed mean"] = uneven_reason(losses["cross entropy"], 8, 4, summed=True).value
reasons["summed sum"] = uneven_reason(losses["sum over number"] * 4, 8, 4, summed=True).value
print(json.dumps(reasons))
"""


@pytest.fixture(scope="module")
def reasons() -> dict[str, str]:
    """The reason against each loss."""
    runtime, contract = Path(ullage_run.__file__).parent.parent, Path(ullage.__file__).parent.parent
    done = subprocess.run(
        [PYTHON, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": f"{runtime}:{contract}"},
        capture_output=True,
        text=True,
        check=True,
    )
    stated: dict[str, str] = json.loads(done.stdout)
    return stated


def test_means_over_samples_may_be_weighted(reasons: dict[str, str]) -> None:
    means = (
        *("cross entropy", "of images", "of tokens", "squares", "absolute", "smooth", "binary"),
        *("of each sample", "two losses", "divided", "scaled", "half", "penalty", "norm"),
    )
    assert {name: reasons[name] for name in means} == dict.fromkeys(means, "")


def test_others_are_refused(reasons: dict[str, str]) -> None:
    others = (
        *("sum", "sum over number", "class weights", "ignored", "product", "ratio", "vector"),
        *("no graph", "summed mean"),
    )
    assert {name: reasons[name] for name in others} == dict.fromkeys(others, "LossNotAMean")


def test_losses_that_compare_samples_are_refused(reasons: dict[str, str]) -> None:
    compared = ("in batch", "in batch, detached", "distances")
    assert {name: reasons[name] for name in compared} == dict.fromkeys(compared, "InBatchLoss")


def test_a_sum_over_a_common_number_needs_no_weight(reasons: dict[str, str]) -> None:
    assert reasons["summed sum"] == ""
