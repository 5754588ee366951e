# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Public traces that the repository does not carry, read from a folder where someone has them.

Each with a cluster that it keeps busy; what is missing is said and left out, never made up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ullage_simulate.readers import Format, read_trace
from ullage_simulate.readers_sia import read_step_times
from ullage_simulate.reading import ReadingOptions
from ullage_simulate.speeds import built_in
from ullage_simulate.trace import Fleet, JobTrace

GAVEL_FLEET: Final = Fleet(devices={"v100": 8, "p100": 8, "k80": 8})
SIA_FLEET: Final = Fleet(devices={"t4": 24, "rtx2080ti": 24, "a100": 16})
SERVING_FLEET: Final = Fleet(devices={"a10": 80})
"""A little less than the service asks for at its peak."""
SERVICE: Final = "app_20"
PHILLY_FLEET: Final = Fleet(devices={"v100": 24, "p100": 24, "k80": 24})
MSR_JOBS: Final = 300
PHILLY_JOBS: Final = 120


def msr(data: Path, jobs: int = MSR_JOBS) -> JobTrace:
    """Philly's arrivals and gangs with types of the table: one virtual cluster, one draw."""
    select = {"vc": "103959", "seed": "0"}
    file = data / "gavel" / "jobs_msr_synthetic.csv.gz"
    return read_trace(file, Format.GAVEL, ReadingOptions(select=select)).first(jobs)


def public_traces(data: Path) -> Iterator[tuple[str, JobTrace, Fleet]]:
    """Name, trace and cluster of each that is there."""
    gavel, clusters = data / "gavel", data / "cluster_traces"
    if _there(gavel / "jobs_msr_synthetic.csv.gz"):
        yield "msr", msr(data), GAVEL_FLEET
    if _there(clusters / "philly_jobs.csv.gz"):
        select = {"vc": "7f04ca"}
        philly = read_trace(
            clusters / "philly_jobs.csv.gz", Format.PHILLY, ReadingOptions(select=select)
        )
        yield (
            "philly",
            philly.first(PHILLY_JOBS),
            PHILLY_FLEET,
        )
    steps = data / "training_throughput" / "sia_placement_step_times.csv.gz"
    for source in ("saturn", "philly"):
        file = clusters / f"sia_workload_{source}.csv"
        if _there(file) and _there(steps):
            reading = ReadingOptions(table=read_step_times(steps), select={"workload_id": "1"})
            yield f"sia_{source}", read_trace(file, Format.SIA, reading), SIA_FLEET
    if _there(clusters / "alibaba_2025_dlrm_instances.csv.gz"):
        select = {"app_name": SERVICE}
        reading = ReadingOptions(
            table=built_in(), select=select, types=tuple(SERVING_FLEET.devices)
        )
        file = clusters / "alibaba_2025_dlrm_instances.csv.gz"
        yield "alibaba_serving", read_trace(file, Format.ALIBABA, reading), SERVING_FLEET


def _there(file: Path) -> bool:
    found = file.is_file()
    if not found:
        print(f"{file} is not there: its part is left out (--data names the folder)")
    return found
