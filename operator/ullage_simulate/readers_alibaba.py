# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Alibaba's traces: inference instances (2025) and the pods of a cluster of shared GPUs (2023).

Both have the time for which a container held its devices, not its work: all types are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ullage_simulate.reading import ReadingOptions
from ullage_simulate.table import TableRow
from ullage_simulate.trace import WHOLE, JobTrace, TraceJob, in_order

_SECONDS: Final = "seconds, as 12.5, or nothing"
_LIFE: Final = (
    "what has no creation time is there from the start, what has no deletion time to the end; "
    "every type serves alike."
)


def instances(name: str, lines: Sequence[TableRow], how: ReadingOptions) -> JobTrace:
    """Inference instances: each holds its GPUs from creation to deletion and is never preempted."""
    last_s, jobs, bare = _last_s(lines), [], 0
    for row in lines:
        gang = row.whole("gpu_request", "a number of devices, as 2", least=0, default=0)
        service = row.text("app_name")
        if gang == 0:
            bare += 1
        elif (life := _life(row, last_s)) is not None:
            jobs.append(
                TraceJob(
                    name=row.text("instance_sn"),
                    gang=gang,
                    steps=life[1],
                    arrival_s=life[0],
                    speeds=dict.fromkeys(how.types or how.table.types, 1.0),
                    kind=f"service {service}".strip(),
                    checkpointable=False,
                    tenant=service,
                )
            )
    return in_order(name, jobs, (_left_out(bare), _LIFE))


def pods(name: str, lines: Sequence[TableRow], how: ReadingOptions) -> JobTrace:
    """Pods of ``openb_pod_list_*.csv``: whole GPUs, or thousandths of one.

    ``gpu_spec`` lists the allowed models of a pod, if any. A pod that was never scheduled in the
    trace holds its devices as long as one that was.
    """
    types = how.types or how.table.types
    last_s, jobs, bare, ended, strange = _last_s(lines), [], 0, 0, 0
    for row in lines:
        gang = row.whole("num_gpu", "a number of devices, as 2", least=0)
        if gang == 0:
            bare += 1
            continue
        milli = row.whole("gpu_milli", "thousandths of a device, as 460", default=WHOLE)
        if milli > WHOLE or (gang > 1 and milli < WHOLE):
            raise row.wrong(
                "gpu_milli", f"is more than a device, or a part of each of {gang}: write 1000"
            )
        models = {model.strip() for model in row.text("gpu_spec").split("|")} - {""}
        life = _life(row, last_s)
        if life is None:
            ended += 1
        elif models and models.isdisjoint(types):
            strange += 1
        else:
            jobs.append(
                TraceJob(
                    name=row.text("name"),
                    gang=gang,
                    milli=milli,
                    steps=life[1],
                    arrival_s=life[0],
                    speeds={kind: float(not models or kind in models) for kind in types},
                    kind=f"{row.text('qos')} pod".strip(),
                    checkpointable=False,
                )
            )
    notes = (
        _left_out(bare),
        f"{ended} that end when they begin were left out." if ended else "",
        f"{strange} that ask for models which this cluster lacks were left out." if strange else "",
        _LIFE,
    )
    return in_order(name, jobs, notes)


def _last_s(lines: Sequence[TableRow]) -> float:
    columns = ("creation_time", "deletion_time")
    return max(
        (row.number(column, _SECONDS, default=0.0) for row in lines for column in columns),
        default=0.0,
    )


def _life(row: TableRow, last_s: float) -> tuple[float, int] | None:
    """Creation and seconds until deletion; ``None`` = it ends when it begins."""
    start_s = row.number("creation_time", _SECONDS, default=0.0)
    end_s = row.number("deletion_time", _SECONDS, default=last_s)
    return (start_s, max(1, round(end_s - start_s))) if end_s > start_s else None


def _left_out(bare: int) -> str:
    return f"{bare} that ask for no GPU were left out." if bare else ""
