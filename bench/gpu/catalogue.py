# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What runs in the windows: workloads by name, with what the rows say about them.

Figures here are plans (sizes, offered loads), never measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["train", "infer", "probe"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload. ``rates`` are the two offered loads of its open loop, requests/s."""

    name: str
    kind: Kind
    family: str
    batch: int
    precision: str = "bf16"
    graph: bool = False
    memory_mib: int = 1200
    rates: tuple[float, ...] = ()


def _all(*found: Workload) -> dict[str, Workload]:
    return {one.name: one for one in found}


W = Workload
WORKLOADS: Final = _all(
    W(name="R50T", kind="train", family="resnet", batch=64),
    W(name="R50I", kind="infer", family="resnet", batch=8, graph=True, rates=(150.0, 400.0)),
    W(name="BERTT", kind="train", family="bert", batch=32),
    W(name="BERTI", kind="infer", family="bert", batch=16, graph=True, rates=(60.0, 150.0)),
    W(name="GPT2D", kind="infer", family="gpt", batch=16, graph=True, rates=(60.0, 150.0)),
    W(name="VITT", kind="train", family="vit", batch=64),
    W(name="DLRM", kind="train", family="dlrm", batch=4096, precision="fp32", memory_mib=2600),
    W(name="PRE", kind="infer", family="block", batch=1, graph=True, memory_mib=2900),
    W(name="DEC", kind="infer", family="block", batch=8, graph=True, memory_mib=2900),
    W(name="UNET", kind="infer", family="unet", batch=2, graph=True),
    W(name="R18T", kind="train", family="resnet", batch=128),
    W(name="LSTMT", kind="train", family="lstm", batch=64),
    W(name="GPT2T", kind="train", family="gpt", batch=4),
    W(name="CONVT", kind="train", family="convnext", batch=32),
    W(name="VITI", kind="infer", family="vit", batch=8, graph=True, rates=(60.0, 150.0)),
    W(name="STREAM", kind="probe", family="probe", batch=1, precision="fp32"),
    W(name="GEMM", kind="probe", family="probe", batch=1),
    W(name="L2T", kind="probe", family="probe", batch=1, precision="fp32"),
)
PROBES: Final = ("STREAM", "GEMM", "L2T")
FIRST: Final = ("R50T", "R50I", "BERTT", "BERTI", "GPT2D", "VITT", "DLRM", "PRE", "DEC", "UNET")
KEPT: Final = ("R50I", "BERTI", "GPT2D", "PRE", "DEC")
"""Tenants of the first run that the second takes again."""
FRESH: Final = ("R18T", "LSTMT", "GPT2T", "CONVT", "VITI")
"""Tenants that the second run sees first."""
SHARES: Final = (25, 50, 75, 100)
REFERENCE: Final = {"r1": ("BERTT", "DEC"), "r2": ("BERTI", "DEC")}
