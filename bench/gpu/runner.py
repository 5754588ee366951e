# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""One command of a run: command 0, workers, windows, files; ends by its own timer.

Every window has an attachment verdict for every tenant, taken while it runs. Rows are on the disk
window by window. What cannot be measured is written down as such and never filled in.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from bench.gpu.catalogue import WORKLOADS
from bench.gpu.crew import Crew, CrewStuck, cores_for
from bench.gpu.device import Gauge
from bench.gpu.freezing import freeze_figures
from bench.gpu.mps import Silent, Transcript
from bench.gpu.orders import Order, Report
from bench.gpu.plan import WARM_S, Member, Name, Plan, Window, make_plan
from bench.gpu.preflight import Findings, Preflight
from bench.gpu.references import fill_references
from bench.gpu.rig import MPS_LIMIT, Rig
from bench.gpu.rows import Context, row_of
from bench.gpu.schema import PREFIX, SUFFIX, Cell, RowFile, member

FINISH_S: Final = 15.0
"""Kept for reports, files, and MPS's end."""
START_S: Final = 120.0
"""Longest wait for all workers."""
LEAD_S: Final = 0.05
"""From the release to the start that all workers wait for."""
NVML_PERIOD_S: Final = 0.2
SM_STEP: Final = 8
"""Most multiprocessors by which rounding may fall below the percentage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a person chooses."""

    name: Name
    out: Path
    run_id: str
    seed: int = 0
    minutes: float = 9.5
    part: tuple[int, int] = (1, 1)
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Files that were written, and how it ended."""

    rows: Path
    summary: Path
    transcript: Path
    windows: int
    ended: str


class Run:
    """One command on one rig."""

    def __init__(
        self,
        options: Options,
        rig: Rig,
        say: Callable[[str], None] = print,
        done: Callable[[int, int], None] = lambda _count, _planned: None,
    ) -> None:
        self._options = options
        self._rig = rig
        self._say = say
        self._done = done
        self._begun_s = time.monotonic()
        self._stopped = ""
        self._verdicts = 0
        self._freezes: list[dict[str, Cell]] = []

    @property
    def _left_s(self) -> float:
        spent_s = time.monotonic() - self._begun_s
        return self._options.minutes * 60 - FINISH_S * min(1.0, self._rig.scale or 1.0) - spent_s

    def stop(self, why: str) -> None:
        """End after the window that runs now; everything is saved."""
        self._stopped = self._stopped or why

    def do(self) -> Outcome:
        """Run it."""
        options, rig = self._options, self._rig
        self._say(rig.device.facts.said())
        findings = Preflight(rig, terminations=20 if options.name == "r2" else 3).run()
        for reason in findings.reasons:
            self._say(f"abort rule: {reason}")
        crew = Crew(rig.mps.root, rig.mps.env, scale=rig.scale)
        part = f"-p{options.part[0]}" if options.part[1] > 1 else ""
        stem = f"{PREFIX}{options.run_id}{part}"
        journal = options.out / f"{stem}.part{SUFFIX}"
        rows: list[dict[str, Cell]] = []
        try:
            plan = self._plan(findings)
            self._warn_of_memory(plan)
            crew.start(plan.keys, mps=findings.mode != "none", timeout_s=START_S)
            plan = self._plan(findings)  # with the time that is really left
            with RowFile(journal) as file:
                for number, window in enumerate(plan.windows, start=1):
                    if self._over():
                        break
                    found = self._window(window, crew, findings, plan)
                    file.append(found)
                    rows += found
                    self._done(number, len(plan.windows))
        except CrewStuck as error:
            self.stop(str(error))
            plan = Plan(name=options.name, seed=options.seed, windows=(), dropped={})
        finally:
            crew.close()
        final = options.out / f"{stem}{SUFFIX}"
        self._finish(journal, final, rows)
        summary = self._summary(f"gpu-run-{options.run_id}{part}.json", plan, findings, rows)
        return Outcome(
            rows=final,
            summary=summary,
            transcript=rig.mps.transcript.path,
            windows=len({row["window_id"] for row in rows}),
            ended=self._stopped or "complete",
        )

    def _plan(self, findings: Findings) -> Plan:
        """The windows for the time that is left; without MPS only whole shares."""
        options, rig = self._options, self._rig
        seconds = self._left_s / rig.seconds(1.0)
        plan = make_plan(
            options.name, options.seed, seconds=seconds, tenants=options.tenants, part=options.part
        )
        if findings.mode == "none":
            whole = [w for w in plan.windows if all(m.percent == 100 for m in w.members)]
            windows = [replace(w, block=f"time-slicing {w.block}") for w in whole]
            plan = replace(plan, windows=tuple(windows))
        if len(plan.keys) > MPS_LIMIT:
            raise ValueError(f"{len(plan.keys)} workers, at most {MPS_LIMIT} contexts fit a server")
        return plan

    def _warn_of_memory(self, plan: Plan) -> None:
        """Plans, not measurements: a worker that gets no memory says so in its rows."""
        wanted = sum(WORKLOADS[one.tenant].memory_mib for one in plan.keys)
        if wanted > self._rig.device.facts.memory_mib:
            self._say(
                f"planned memory {wanted} MiB of {self._rig.device.facts.memory_mib} MiB for"
                f" {len(plan.keys)} workers; choose fewer with --tenants if workers fail"
            )

    def _over(self) -> bool:
        if self._left_s <= 0:
            self.stop(f"own timer: {self._options.minutes:g} minutes")
        if xids := self._rig.device.xids():
            self.stop(f"abort rule: Xid {', '.join(map(str, xids))}")
        return bool(self._stopped)

    # -- one window ------------------------------------------------------------------------------

    def _window(
        self, window: Window, crew: Crew, findings: Findings, plan: Plan
    ) -> list[dict[str, Cell]]:
        rig = self._rig
        rig.before(window)
        orders = self._orders(window, plan)
        gone = crew.release(orders)
        start_s = next(iter(orders.values())).start_s
        attached = self._attachment(window, crew, findings)
        gauge = self._watch(window, start_s, crew)
        waiting = [key for key in orders if key not in gone]
        # a worker may finish its last iteration after the end of the window
        patience_s = rig.seconds(window.measured_s) + 10.0
        reports: dict[str, Report | str] = {**gone, **crew.gather(waiting, window.id, patience_s)}
        context = Context(
            options_run=self._options.run_id,
            facts=rig.device.facts,
            mode=findings.mode,
            seed=plan.seed,
            window=window,
            gauge=gauge,
        )
        if window.freeze:
            self._note_freeze(window, reports)
        seen = {key: worker.hello for key, worker in crew.workers.items()}
        return [
            row_of(context, place, one, reports[one.key], seen[one.key], attached[one.key])
            for place, one in enumerate(window.members)
        ]

    def _orders(self, window: Window, plan: Plan) -> dict[str, Order]:
        members: list[list[str | int]] = [[one.tenant, one.percent] for one in window.members]
        start_s = time.monotonic() + self._rig.seconds(LEAD_S)
        return {
            one.key: Order(
                window=window.id,
                start_s=start_s,
                warm_s=WARM_S,
                measured_s=window.measured_s,
                seed=f"{plan.seed}/{window.id}",
                place=place,
                members=members,
                rate=one.rate,
                cores=None if self._rig.dry else cores_for(place, len(window.members)),
            )
            for place, one in enumerate(window.members)
        }

    def _attachment(self, window: Window, crew: Crew, findings: Findings) -> dict[str, bool]:
        """Verdict for every member: in the server's list now, with the share that it should have.

        Without MPS: it runs, alone or by turns, on the whole device.
        """
        self._verdicts += 1
        try:
            clients = self._rig.mps.clients() if findings.mode != "none" else frozenset()
        except Silent:
            clients = frozenset()  # no one is proven
        return {one.key: self._proven(one, crew, findings, clients) for one in window.members}

    def _proven(self, one: Member, crew: Crew, findings: Findings, clients: frozenset[int]) -> bool:
        hello = crew.workers[one.key].hello
        if hello is None or not crew.workers[one.key].alive or hello.error:
            return False
        if findings.mode == "none":
            return hello.sm_count == self._rig.sm_count
        wanted = self._rig.sm_count * one.percent / 100
        rounded = wanted - SM_STEP < hello.sm_count <= wanted
        return hello.attached and hello.pid in clients and rounded

    def _watch(self, window: Window, start_s: float, crew: Crew) -> Gauge:
        """Counters between both ends of the measured part, readings in between."""
        rig = self._rig
        begin_s = start_s + rig.seconds(WARM_S)
        end_s = begin_s + rig.seconds(window.measured_s)
        _until(begin_s)
        gauge = rig.device.begin()
        rig.device.tick(gauge)
        freeze_s = begin_s + (end_s - begin_s) / 2 if window.freeze else end_s
        while (now_s := time.monotonic()) < freeze_s:
            _until(min(freeze_s, now_s + NVML_PERIOD_S))
            rig.device.tick(gauge)
        if window.freeze:
            self._frozen(crew.workers[window.members[-1].key].process.pid, end_s)
        rig.device.end(gauge)
        return gauge

    def _frozen(self, pid: int, end_s: float) -> None:
        """Stop a worker until the end of the window."""
        os.kill(pid, signal.SIGSTOP)
        try:
            _until(end_s)
        finally:
            os.kill(pid, signal.SIGCONT)

    def _note_freeze(self, window: Window, reports: Mapping[str, Report | str]) -> None:
        """What the stop did to the first member."""
        report = reports[window.members[0].key]
        if isinstance(report, Report):
            figures = freeze_figures(report.durations_ms, report.ends_s, window.measured_s / 2)
            victim, frozen = window.members[0].key, window.members[-1].key
            self._freezes.append(
                {"window_id": window.id, "victim": victim, "frozen": frozen, **figures}
            )

    # -- files -----------------------------------------------------------------------------------

    def _finish(self, journal: Path, final: Path, rows: list[dict[str, Cell]]) -> None:
        """The final file holds the solo references too; the journal goes once it is on the disk."""
        temporary = final.with_suffix(".new")
        with temporary.open("wb") as file:
            file.write(member((), header=True) + member(fill_references(rows), header=False))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(final)
        journal.unlink(missing_ok=True)

    def _summary(
        self, name: str, plan: Plan, findings: Findings, rows: list[dict[str, Cell]]
    ) -> Path:
        facts = self._rig.device.facts
        body: dict[str, object] = {
            "said": facts.said(),
            **asdict(facts),
            "no_gpu_was_used": facts.fake,
            "run": self._options.name,
            "run_id": self._options.run_id,
            "part": list(self._options.part),
            "seed": plan.seed,
            "windows_planned": len(plan.windows),
            "windows_done": len({row["window_id"] for row in rows}),
            "windows_dropped": plan.dropped,
            "attachment_verdicts": self._verdicts,
            "rows": len(rows),
            "rows_with_error": sum(bool(row["error"]) for row in rows),
            "rows_not_attached": sum(row["attached"] is False for row in rows),
            "ended": self._stopped or "complete",
            "seconds": round(time.monotonic() - self._begun_s, 1),
            "freezes": self._freezes,
            "command_0": findings.figures(),
        }
        path = self._options.out / name
        path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")
        return path


def _until(at_s: float) -> None:
    time.sleep(max(0.0, at_s - time.monotonic()))


def transcript_of(options: Options) -> Transcript:
    """The transcript file of a command."""
    part = f"-p{options.part[0]}" if options.part[1] > 1 else ""
    return Transcript(options.out / f"gpu-transcript-{options.run_id}{part}.txt")


def needs(names: tuple[str, ...]) -> None:
    """Refuse names of tenants that do not exist.

    Raises:
        ValueError: names the first that is unknown, and those that are known.
    """
    for name in names:
        if name not in WORKLOADS or WORKLOADS[name].kind == "probe":
            raise ValueError(f"no such tenant: {name}; known: {', '.join(sorted(WORKLOADS))}")
