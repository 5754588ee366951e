# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Advice on the accelerator of a job, and their number. Pure: records in, rich renderables out.

The same answer as in `status.recommendation`, from the same engine; also for jobs without an aim,
and for jobs that are still a file.
"""

from __future__ import annotations

import json
from typing import Final

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.api.readers import WireError
from ullage.api.reasons import Reason, Standing
from ullage.cli.tables import table_of
from ullage.cluster.codecs.objects import Sharer
from ullage.cluster.projection.workload import project_workload
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.status import Recommended
from ullage.cluster.records.workload import WorkloadKind, WorkloadRecord
from ullage.scheduling.learning.recommend import Advice, Advisor
from ullage.scheduling.learning.recommendation import rows_of

CREATED: Final = "1970-01-01T00:00:00Z"


class ManifestError(Exception):
    """The file has no usable TrainingJob; the text has the correction."""


def document_of(text: str) -> dict[str, object]:
    """The one TrainingJob among the documents of a file.

    Raises:
        ManifestError: there is none, or the file is no YAML.
    """
    try:
        documents = [
            document for document in yaml.safe_load_all(text) if isinstance(document, dict)
        ]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise ManifestError(f"the file is no YAML: {error}") from error
    jobs = [document for document in documents if document.get("kind") == "TrainingJob"]
    if len(jobs) != 1:
        raise ManifestError(f"the file holds {len(jobs)} TrainingJobs; give one")
    return jobs[0]


def job_of(text: str, namespace: str) -> WorkloadRecord:
    """The TrainingJob of a manifest, as read by the operator.

    Args:
        text: YAML with one TrainingJob among its documents.
        namespace: Its namespace unless the manifest has one.

    Raises:
        ManifestError: there is none, or it cannot be read.
    """
    document = document_of(text)
    try:
        # an unquoted date is text to the API server as well
        raw = json.loads(json.dumps(document, default=str))
    except (ValueError, RecursionError) as error:
        raise ManifestError(f"the manifest cannot be written as JSON: {error}") from error
    metadata = raw.get("metadata")
    if isinstance(metadata, dict):
        created = {"uid": "manifest", "creationTimestamp": CREATED}
        raw["metadata"] = {"namespace": namespace} | metadata | created
    try:
        record, _ = project_workload(WorkloadKind.TRAINING_JOB, raw, None, Sharer())
    except WireError as error:
        raise ManifestError(str(error)) from error
    if record.invalid:
        raise ManifestError(record.invalid)
    return record


def recommendation(snapshot: Snapshot, job: WorkloadRecord) -> RenderableType:
    """The table of a job's accelerators with the arguments for and against each."""
    advice = Advisor.of(snapshot).advice(job)
    rows = rows_of(advice)
    if not rows:
        return Text("no accelerators: the cluster reports no healthy devices", style="yellow")
    return Group(_table(rows), Text(_footer(advice, job), style="dim"))


def _style(verdict: Reason) -> str:
    if verdict is Reason.RECOMMENDED:
        return "green"
    return "" if Standing.RANKED in verdict.standing else "yellow"


def _table(rows: tuple[Recommended, ...]) -> Table:
    table = table_of(
        "ACCELERATOR", "DEVICES", "TIME", "4 OF 5 WITHIN", "COST", "SPEED", "CONFIDENCE", "MEMORY",
        "VERDICT", "WHY",
    )  # fmt: skip
    for row in rows:
        table.add_row(
            row.accelerator,
            str(row.devices),
            duration(row.total_s),
            _bounds(row),
            row.cost or "-",
            row.source or "-",
            row.confidence or "-",
            "-" if row.need_mib is None else f"{row.need_mib} MiB",
            Text(row.reason.value, style=_style(row.reason)),
            row.message,
        )
    return table


def _bounds(row: Recommended) -> str:
    if row.low_s is None or row.high_s is None or row.low_s == row.high_s:
        return "-"
    return f"{duration(row.low_s)} to {duration(row.high_s)}"


def _footer(advice: Advice, job: WorkloadRecord) -> str:
    """The basis of the figures, and how to improve them."""
    whole = "of the whole training" if job.work_steps else "of 1,000 steps (spec.work is not said)"
    footer = f"time and cost {whole}, {advice.steps} steps"
    if job.cost is None:
        footer += "; spec.cost is not said, so nothing rules a type out by cost or time"
    own = job.replicas * job.gpu.count
    if any(row.offer.gpus != own for row in (*advice.table.rows, *advice.numbers)):
        footer += f"\n{_of_numbers(advice, job)}"
    return footer


def _of_numbers(advice: Advice, job: WorkloadRecord) -> str:
    """The source of figures of other numbers of devices, and their use."""
    own = "1 member" if job.replicas == 1 else f"{job.replicas} members"
    text = (
        f"speeds are of {own}; other numbers are estimates: n members are n x 0.97^log2(n) times"
        " as fast as one"
    )
    if job.elasticity is None:
        return f"{text}, each with a batch as large as now"
    first, most = advice.first, job.elasticity.max_replicas
    members = first.offer.gpus // advice.devices_each if first is not None else most
    if members == most:
        return text
    return (
        f"{text}. The gang takes what there is room for, up to {most};"
        f" spec.elasticity.maxReplicas {members} keeps it to the first row"
    )


def duration(seconds: int | None) -> str:
    """A human-readable duration: ``90 s``, ``12 min``, ``3.4 h``, ``5.1 d``."""
    if seconds is None:
        return "-"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds} s"
