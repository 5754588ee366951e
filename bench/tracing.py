# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Breakdowns of traces beside those of HolisticTraceAnalysis 0.5.0 (HTA): figures, speed, memory.

HTA leaves out work of the device whose launch is not in the trace, and rounds times inward; it is
run without the rounding, and our figures of the same rule stand beside our own, which leave out
nothing. Its own test traces are read from ``--data`` (``tests/data`` of its repository, commit
f4d0062), the others are drawn. The large trace repeats one trace up to 200 MB.

    python -m bench.tracing --data HolisticTraceAnalysis/tests/data
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from bench import report
from ullage.engines.tracing.breakdown import activities_of, launched
from ullage.engines.tracing.intervals import Intervals
from ullage.engines.tracing.kineto_events import DEVICE, KinetoTrace, Use, read_kineto_trace
from ullage.engines.tracing.limits import MIB

HTA: Final = ("HolisticTraceAnalysis==0.5.0", "psutil")
"""The second one it imports without declaring it."""
PLACE: Final = report.ROOT / "build" / "tracing"
OWN_TRACES: Final = (
    "trace_filter/sampled_rank-0.json.gz",
    "trace_diff/control/control.json.gz",
    "trace_diff/test/test.json.gz",
    "ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz",
    "nccl_parser_config/nccl_data.json.gz",
    "negative_queue_length_values_check/rank0.json.gz",
    "df_index_resolver/df_index_resolver.json.gz",
)
LARGE_MB: Final = 200
DRAWN: Final = 3
PARITY_PP: Final = 0.05
FASTER: Final = 10.0
SMALLER: Final = 1 / 5
BARS: Final[report.Bars] = {
    "parity_pp": lambda points: points <= PARITY_PP,
    "speed_vs_hta": lambda times: times >= FASTER,
    "memory_vs_hta": lambda share: share <= SMALLER,
}
_SUMMARY: Final = """
import json, sys, time
from ullage_node.traces.analyse import chunks_of
from ullage.engines.tracing.summary import summarised
before = time.process_time()
events = summarised(chunks_of(sys.argv[1])).events
seconds = time.process_time() - before
status = open("/proc/self/status").read()
peak = int(status.partition("VmHWM:")[2].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "peak_mib": peak, "events": events}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Percent of the span from the first to the last work of the device."""

    idle: float
    compute: float
    overlap: float | None
    """Of communication; ``None`` = there is none."""

    def apart(self, other: Shares) -> float:
        """Largest difference, percentage points; HTA rounds its overlap to two decimals."""
        parts = [self.idle - other.idle, self.compute - other.compute]
        if self.overlap is not None and other.overlap is not None:
            parts.append(self.overlap - other.overlap)
        return max(abs(part) for part in parts)

    def shown(self) -> str:
        """One cell of the table."""
        overlap = "-" if self.overlap is None else f"{self.overlap:.2f}"
        return f"{self.idle:.2f} / {self.compute:.2f} / {overlap}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="tests/data of HTA's repository")
    arguments = parser.parse_args()
    PLACE.mkdir(parents=True, exist_ok=True)
    python = environment()
    rows, worst = [], 0.0
    for name, path in traces(arguments.data):
        trace = read_kineto_trace(chunks(path))
        theirs = of_hta(python, path, trace)
        ours, raw = shares(trace, launched_only=True), shares(trace, launched_only=False)
        worst = max(worst, ours.apart(theirs))
        rows.append(
            report.Row(
                what=f"{name}: idle / compute / overlap %",
                ours=f"{ours.shown()} (all work: {raw.shown()})",
                baseline=theirs.shown(),
                limit=f"{PARITY_PP} pp",
            )
        )
    large = large_trace(arguments.data)
    mine = printed([sys.executable, "-c", _SUMMARY, str(large)])
    hta = printed([str(python), str(Path(__file__).with_name("tracing_hta.py")), str(large)])
    figures: dict[str, report.Figure] = report.figures_before("tracing") | {
        "parity_pp": round(worst, 4),
        "speed_vs_hta": round(hta["seconds"] / mine["seconds"], 2),
        "memory_vs_hta": round(mine["peak_mib"] / hta["peak_mib"], 4),
        "large_trace_s": round(mine["seconds"], 2),
        "large_trace_peak_mib": round(mine["peak_mib"], 1),
    }
    size = large.stat().st_size / 1e6
    rows += [
        report.Row(
            what=f"{size:.0f} MB, {mine['events']:.0f} events: CPU seconds",
            ours=f"{mine['seconds']:.2f}",
            baseline=f"{hta['seconds']:.1f}",
            limit=f"1/{FASTER:.0f}",
        ),
        report.Row(
            what="the same: peak MiB",
            ours=f"{mine['peak_mib']:.0f}",
            baseline=f"{hta['peak_mib']:.0f}",
            limit=f"1/{1 / SMALLER:.0f}",
        ),
    ]
    report.write("tracing", figures, rows)
    measured = {name: figures[name] for name in BARS}
    missed = [
        name for name, value in measured.items() if value is None or not BARS[name](float(value))
    ]
    for name in missed:
        print(f"bar missed: {name} = {figures[name]}")
    return 1 if missed else 0


def environment() -> Path:
    """Python with HTA, in an environment of its own."""
    place = PLACE / "hta"
    python, ready = place / "bin" / "python", place / ".ready"
    if not ready.exists():
        print("... install", *HTA)
        venv.create(place, with_pip=True, clear=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *HTA], check=True)
        ready.touch()
    return python


def traces(data: Path | None) -> Iterator[tuple[str, Path]]:
    """Traces to compare: HTA's own where they are, and drawn ones."""
    if data is None:
        print("skipped: HTA's own traces; name them with --data (tests/data of its repository)")
    else:
        for name in OWN_TRACES:
            yield name.partition("/")[0] + ":" + Path(name).name[:14], data / name
    for seed in range(DRAWN):
        path = PLACE / f"drawn-{seed}.json"
        path.write_text(json.dumps(drawn(seed)), encoding="utf-8")
        yield f"drawn {seed}", path


def drawn(seed: int, steps: int = 4, kernels: int = 2_000) -> dict[str, object]:
    """A trace with kernels on four streams, some of them collectives or copies, some unlaunched."""
    random = np.random.default_rng(seed)
    events: list[dict[str, object]] = []
    span = 50_000.0
    for step in range(steps):
        start = step * span
        events.append(_event("user_annotation", f"ProfilerStep#{step}", start, span - 1, tid=1))
        for number in range(kernels):
            launch = start + random.uniform(0, span - 10)
            kind = random.choice(["kernel", "collective", "copy"], p=[0.8, 0.1, 0.1])
            name, category = {
                "kernel": ("void gemm<float>(int)", "kernel"),
                "collective": ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "kernel"),
                "copy": ("Memcpy HtoD (Pinned -> Device)", "gpu_memcpy"),
            }[str(kind)]
            correlation = step * kernels + number + 1
            if random.random() < 0.95:
                events.append(
                    _event("cuda_runtime", "cudaLaunchKernel", launch, 4.0, tid=1, at=correlation)
                )
            begin, length = launch + random.exponential(20), random.exponential(12)
            stream = int(random.integers(7, 11))
            events.append(
                _event(category, name, begin, length, tid=stream, at=correlation, stream=stream)
            )
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}


def _event(
    category: str,
    name: str,
    start: float,
    duration: float,
    *,
    tid: int,
    at: int | None = None,
    stream: int | None = None,
) -> dict[str, object]:
    arguments = {"correlation": at, "stream": stream}
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": round(start, 3),
        "dur": round(duration, 3),
        "args": {key: value for key, value in arguments.items() if value is not None},
    }


def shares(trace: KinetoTrace, *, launched_only: bool) -> Shares:
    """Our figures; ``launched_only`` by HTA's rule, which holds where steps are marked."""
    device = trace.of(*DEVICE)
    marks = trace.of(Use.STEP)
    activities = activities_of(trace)
    compute, communication = activities.compute, activities.communication
    if launched_only and len(set(trace.step_numbers.values())) > 1:
        device = launched(trace, float(trace.ends[marks].max()))
        compute = _union(trace, device & trace.of(Use.KERNEL))
        communication = _union(trace, device & trace.of(Use.COLLECTIVE))
    busy = _union(trace, device)
    span = float(busy.ends[-1] - busy.starts[0])
    both = compute.length + communication.length - (compute | communication).length
    return Shares(
        idle=100 * (1 - busy.length / span),
        compute=100 * compute.length / span,
        overlap=100 * both / communication.length if communication.length else None,
    )


def _union(trace: KinetoTrace, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Intervals:
    return Intervals.union(trace.starts[chosen], trace.ends[chosen])


def of_hta(python: Path, path: Path, trace: KinetoTrace) -> Shares:
    """HTA's figures."""
    script = str(Path(__file__).with_name("tracing_hta.py"))
    collectives = [] if trace.of(Use.COLLECTIVE).any() else ["no-collectives"]
    found = printed([str(python), script, str(path), *collectives])
    return Shares(idle=found["idle"], compute=found["compute"], overlap=found["overlap"])


def printed(command: list[str]) -> Mapping[str, float]:
    """The last line of a program as JSON."""
    one_thread = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, env=os.environ | one_thread
    )
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(MIB):
            yield chunk


def large_trace(data: Path | None) -> Path:
    """A trace of 200 MB: one trace again and again, each time later."""
    path = PLACE / f"large-{'hta' if data else 'drawn'}.json"
    if path.exists():
        return path
    if data is None:
        body: dict[str, object] = drawn(0, steps=6, kernels=8_000)
    else:
        body = json.loads(gzip.decompress((data / OWN_TRACES[1]).read_bytes()))
    events = body.pop("traceEvents")
    assert isinstance(events, list)
    timed = [event for event in events if event.get("ph") == "X" and event.get("cat") != "Trace"]
    first, last = (f(event["ts"] for event in timed) for f in (min, max))
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(body)[:-1] + ', "traceEvents": [\n')
        turn = 0
        while file.tell() < LARGE_MB * 1e6:
            for event in events:
                if turn and event.get("ph") == "M":
                    continue
                moved = dict(event)
                if "ts" in event:
                    moved["ts"] = event["ts"] + turn * (last - first + 1000)
                arguments = event.get("args")
                if isinstance(arguments, dict) and "correlation" in arguments:
                    correlation = arguments["correlation"] + turn * 10**8
                    moved["args"] = arguments | {"correlation": correlation}
                if str(event.get("name", "")).startswith("ProfilerStep#"):
                    moved["name"] = f"{event['name']}{turn}"
                file.write(",\n" if turn or event is not events[0] else "")
                file.write(json.dumps(moved, indent=2))
            turn += 1
        file.write("\n]}\n")
    return path


if __name__ == "__main__":
    sys.exit(main())
