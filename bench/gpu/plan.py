# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Which windows are measured, in which order: pure, and the same for the same seed.

Blocks stand in order of worth. What does not fit into the time is dropped from the last block
upwards, never the repeats; what is kept runs in random order, with a reference pair between.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Final, Literal

from bench.gpu.catalogue import FIRST, FRESH, KEPT, PROBES, REFERENCE, SHARES, WORKLOADS

WARM_S: Final = 0.3
MEASURED_S: Final = 1.4
OPEN_LOOP_S: Final = 4.0
GAP_S: Final = 0.1
"""Between windows: release, reports, one line of the file (a plan)."""
REFERENCE_EVERY: Final = 40
KEEP: Final = ("solo", "noise")
"""Blocks that are never dropped."""
COMBINATIONS: Final = ((50, 50), (100, 100), (25, 75))
REMAINING: Final = ((75, 25), (50, 100), (100, 50))

Name = Literal["r1", "r2"]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Member:
    """One tenant of a window. ``rate`` is its offered load, requests/s; 0 = closed loop."""

    tenant: str
    percent: int
    priority: int = 0
    rate: float = 0.0

    @property
    def key(self) -> str:
        """Its process: tenant, share and priority are fixed when it starts."""
        return f"{self.tenant}@{self.percent}/{self.priority}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Members that run together. ``freeze`` = the last of them is stopped half-way."""

    block: str
    members: tuple[Member, ...]
    measured_s: float = MEASURED_S
    freeze: bool = False
    id: int = -1

    @property
    def seconds(self) -> float:
        """What it costs of the run."""
        return WARM_S + self.measured_s + GAP_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Windows in the order in which they run, and what was dropped, by block."""

    name: Name
    seed: int
    windows: tuple[Window, ...]
    dropped: dict[str, int]

    @property
    def keys(self) -> tuple[Member, ...]:
        """Every process that the windows need."""
        found = {one.key: replace(one, rate=0.0) for w in self.windows for one in w.members}
        return tuple(found[key] for key in sorted(found))


def _window(block: str, *members: tuple[str, int], measured_s: float = MEASURED_S) -> Window:
    found = tuple(Member(tenant=name, percent=percent) for name, percent in members)
    return Window(block=block, members=found, measured_s=measured_s)


def _solo(tenants: Sequence[str]) -> list[Window]:
    alone = [(name, share) for name in tenants for share in SHARES]
    alone += [(name, share) for name in PROBES for share in (50, 100)]
    return [_window("solo", one) for one in alone for _ in range(2)]


def _probes(tenants: Sequence[str]) -> list[Window]:
    return [
        _window("probe", (name, share), (probe, share))
        for name in tenants
        for probe in PROBES
        for share in (50, 100)
    ]


def _pairs(tenants: Sequence[str], *, second: bool) -> list[Window]:
    found = []
    for left, right in combinations(tenants, 2):
        known = second and left in KEPT and right in KEPT
        found += [
            _window("pair", (left, a), (right, b))
            for a, b in (REMAINING if known else COMBINATIONS)
        ]
    return found


def _noise(pairs: Sequence[Window], count: int, rng: random.Random) -> list[Window]:
    chosen = rng.sample(list(pairs), min(count, len(pairs)))
    return [replace(one, block="noise") for one in chosen for _ in range(3)]


def _triples(tenants: Sequence[str], rng: random.Random) -> list[Window]:
    some = rng.sample(list(combinations(tenants, 3)), 20)
    shares = ((25, 25, 50), (50, 50, 50))
    return [_window("triple", *zip(three, one, strict=True)) for three in some for one in shares]


def _open_loop(tenants: Sequence[str], aggressors: Sequence[str]) -> list[Window]:
    found = []
    for name in (one for one in tenants if WORKLOADS[one].rates):
        for other in (one for one in aggressors if one != name):
            for rate in WORKLOADS[name].rates:
                victim = Member(tenant=name, percent=50, rate=rate)
                beside = Member(tenant=other, percent=50)
                found.append(Window(block="open", members=(victim, beside), measured_s=OPEN_LOOP_S))
    return found


def _priority(tenants: Sequence[str]) -> list[Window]:
    low = [Member(tenant=one, percent=100, priority=1) for one in ("PRE", "GPT2T")]
    return [
        Window(block="priority", members=(Member(tenant=name, percent=100), aggressor))
        for aggressor in low
        for name in tenants
    ]


def _freezes(tenants: Sequence[str]) -> list[Window]:
    return [
        replace(_window("freeze", (name, 50), (other, 50), measured_s=3.0), freeze=True)
        for name, other in (("GPT2D", "PRE"), ("DEC", "GPT2T"), ("BERTI", "R18T"))
        if name in tenants and other in tenants
    ]


def blocks(name: Name, seed: int, tenants: Sequence[str] = ()) -> list[tuple[str, list[Window]]]:
    """Blocks in order of worth.

    Args:
        name: Which run.
        seed: Chooses repeats and triples.
        tenants: Fewer than the run's own, for a small dry run.
    """
    rng = random.Random(f"plan {seed}")
    who = tuple(tenants) or (FIRST if name == "r1" else KEPT + FRESH)
    pairs = _pairs(who, second=name == "r2")
    noise = _noise(pairs, 20, rng)
    found = [("noise", noise), ("solo", _solo(who)), ("probe", _probes(who)), ("pair", pairs)]
    if name == "r2":
        found += [
            ("open", _open_loop(who, [one for one in who if one in ("PRE", "DEC", *FRESH[:3])])),
            ("freeze", _freezes(who)),
            ("triple", _triples(who, rng) if len(who) >= 6 else []),
            ("priority", _priority(who) if set(FRESH) <= set(who) else []),
        ]
    return found


def make_plan(
    name: Name,
    seed: int,
    *,
    seconds: float,
    tenants: Sequence[str] = (),
    part: tuple[int, int] = (1, 1),
) -> Plan:
    """The windows of one command.

    Args:
        name: Which run.
        seed: Of the order and every choice.
        seconds: Time for windows; what does not fit is dropped, the last block first.
        tenants: Fewer than the run's own.
        part: (k, n): the k-th of n commands of one run takes every n-th window of every block.
    """
    first, count = part
    found = [(block, ws[first - 1 :: count]) for block, ws in blocks(name, seed, tenants)]
    dropped: dict[str, int] = {}
    over = sum(w.seconds for _, ws in found for w in ws) - seconds
    for block, windows in reversed(found):
        while over > 0 and windows and block not in KEEP:
            over -= windows.pop().seconds
            dropped[block] = dropped.get(block, 0) + 1
    windows = [window for _, ws in found for window in ws]
    random.Random(f"order {seed} {first}").shuffle(windows)
    windows = _with_reference(name, windows)
    numbered = tuple(replace(one, id=number) for number, one in enumerate(windows))
    return Plan(name=name, seed=seed, windows=numbered, dropped=dropped)


def _with_reference(name: Name, windows: list[Window]) -> list[Window]:
    """The reference pair first, every 40 windows, and last; to see drift."""
    present = {one.tenant for w in windows for one in w.members if one.tenant not in PROBES}
    left, right = REFERENCE[name]
    if not {left, right} <= present:
        left, right = sorted(present)[:2]
    reference = _window("reference", (left, 50), (right, 50))
    out = []
    for start in range(0, len(windows), REFERENCE_EVERY):
        out += [reference, *windows[start : start + REFERENCE_EVERY]]
    return [*out, reference]
