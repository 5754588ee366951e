# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs of the GPU harness without a GPU, and rows that were drawn without any process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.gpu import planted, sleeper
from bench.gpu.device import Facts, Gauge
from bench.gpu.mps import Transcript
from bench.gpu.orders import Hello, Order, Report
from bench.gpu.plan import WARM_S, Plan, Window, make_plan
from bench.gpu.rig import Rig, dry_rig
from bench.gpu.rows import Context, row_of
from bench.gpu.schema import PREFIX, SUFFIX, Cell, RowFile

QUICK = 0.004
FACTS = Facts(
    gpu_uuid="GPU-0", gpu_name="drawn (no GPU was used)", driver="none", cuda="0.0",
    memory_mib=1, fake=True,
)  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    found = dry_rig(Transcript(tmp_path / "transcript.txt"), scale=QUICK)
    yield found
    found.close()


def drawn_rows(window: Window, plan: Plan, run_id: str = "drawn") -> list[dict[str, Cell]]:
    """Rows of a window as a dry run would measure them."""
    members = [(one.tenant, one.percent) for one in window.members]
    gauge = Gauge(counters=planted.counters(members))
    context = Context(
        options_run=run_id, facts=FACTS, mode="v2", seed=plan.seed, window=window, gauge=gauge
    )
    found = []
    for place, one in enumerate(window.members):
        order = Order(
            window=window.id, start_s=0.0, warm_s=WARM_S, measured_s=window.measured_s,
            seed=f"{plan.seed}/{window.id}", place=place, members=[list(m) for m in members],
            rate=one.rate,
        )  # fmt: skip
        durations, ends = sleeper.drawn(order)
        report = Report(
            window=window.id, t_start_ns=10**18 + window.id * 2 * 10**9, durations_ms=durations,
            ends_s=ends, cpu_util=0.1,
        )  # fmt: skip
        sms = int(planted.effective(one.percent) * planted.SM_COUNT + 0.5)
        hello = Hello(key=one.key, pid=1, sm_count=sms, attached=True)
        found.append(row_of(context, place, one, report, hello, attached=True))
    return found


@pytest.fixture
def draw(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of drawn rows: ``draw(name, tenants, seed=, change=)``."""

    def make(
        name: str,
        tenants: tuple[str, ...],
        *,
        seed: int = 0,
        run: str = "drawn",
        change: Callable[[dict[str, Cell]], object] = lambda row: None,
    ) -> Path:
        plan = make_plan(name, seed, seconds=1e9, tenants=tenants)  # type: ignore[arg-type]
        path = tmp_path / f"{PREFIX}{run}{SUFFIX}"
        with RowFile(path) as file:
            for window in plan.windows:
                rows = drawn_rows(window, plan, run)
                for row in rows:
                    change(row)
                file.append(rows)
        return path

    return make
