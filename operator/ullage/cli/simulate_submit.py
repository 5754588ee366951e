# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage simulate --submit``: the operator's decision about a job that is still a file.

Reads the manifest and a cluster or its saved snapshot; submits nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.text import Text

from ullage.api.readers import JsonObject, section
from ullage.cli import tables
from ullage.cli.forms import OutputFormat
from ullage.cli.output import workloads_as
from ullage.cli.printing import console_for
from ullage.cli.recommend import ManifestError, document_of, job_of
from ullage.cluster.codecs.objects import optional_text

if TYPE_CHECKING:
    from ullage.cli.target import ClusterTarget
    from ullage_simulate.submission import SubmissionOutcome

MOST_BYTES: Final = 1 << 20
"""Maximum bytes of a manifest; the API server has the same limit."""
_UNLEARNED: Final = (
    "predictions rest on profiles alone; --snapshot with the operator's /debug/snapshot brings what"
    " it has learned of pairs"
)


def submission(
    target: ClusterTarget, manifest: str, snapshot: str
) -> tuple[SubmissionOutcome, tuple[str, ...]]:
    """The outcome of a manifest, and notes on its limits.

    Args:
        target: The cluster, and the default namespace of the manifest.
        manifest: Path of a TrainingJob's YAML; ``-`` = standard input.
        snapshot: Path of a saved snapshot to decide on; empty = the live cluster.

    Raises:
        ValueError: the manifest or the snapshot is unusable; the text has the correction.
        OSError: a file cannot be read.
    """
    from ullage.app.replay import from_json
    from ullage.cli.look import look
    from ullage.cluster.values.streams import STREAMS
    from ullage.kube.credentials import CredentialsError
    from ullage.ports import ApiError
    from ullage.scheduling.model.plan import DecideSettings
    from ullage_simulate.submission import submitted

    content = _text(manifest)
    try:
        notes = _of_priority(document_of(content))
        job = job_of(content, target.namespace_or("default" if snapshot else ""))
        if snapshot:
            seen, now, settings = from_json(Path(snapshot).read_bytes())
            return submitted(seen, job, now, settings), notes
        seen = asyncio.run(look(target, STREAMS))
    except (ManifestError, ApiError, CredentialsError) as error:
        raise ValueError(f"--submit: {error}") from error
    epoch = max((node.epoch for node in seen.gpu_nodes.values()), default=1)
    return submitted(seen, job, time.time(), DecideSettings(epoch=epoch)), (*notes, _UNLEARNED)


def _of_priority(document: JsonObject) -> tuple[str, ...]:
    """Note on a PriorityClass of the priority: the class itself is not read."""
    spec = section(section(section(document, "spec"), "template"), "spec")
    name = optional_text(spec, "priorityClassName")
    if not name:
        return ()
    return (f"priorityClassName {name} is not read: write its value as priority of the template",)


def answer(submission: SubmissionOutcome) -> RenderableType:
    """The decision as ``kubectl ullage why`` shows it, below a line with the outcome."""
    job, name = submission.job, f"{submission.job.ref.namespace}/{submission.job.ref.name}"
    if submission.starts_in_s is None:
        head = Text(f"{name} would wait", style="bold yellow")
    else:
        when = "at once" if submission.starts_in_s < 1 else f"after {submission.starts_in_s:.0f} s"
        head = Text(f"{name} would start {when}", style="bold green")
    parts: list[RenderableType] = [head]
    if job.status.placement:
        places = tables.table_of("MEMBER", "NODE", "GPU", "SHARE")
        for place in job.status.placement:
            places.add_row(place.pod, place.node, place.gpu, f"{place.percent}%")
        parts.append(places)
    if submission.disturbed:
        others = tables.table_of("STOPS FOR IT", "WHY")
        for ref, why in sorted(submission.disturbed.items(), key=lambda item: item[0].name):
            others.add_row(f"{ref.namespace}/{ref.name}", why)
        parts.append(others)
    return Group(*parts, tables.why(job))


def show(submitted: tuple[SubmissionOutcome, tuple[str, ...]], json_file: str) -> None:
    """Print the answer, and optionally write it as JSON (``-`` = standard output)."""
    submission, notes = submitted
    out = console_for("stderr" if json_file == "-" else "stdout")
    out.print(answer(submission))
    for note in notes:
        out.print(f"note: {note}", markup=False)
    if json_file == "-":
        sys.stdout.write(as_json(submission))
    elif json_file:
        Path(json_file).write_text(as_json(submission), encoding="utf-8")


def as_json(submission: SubmissionOutcome) -> str:
    """Output for scripts; the status is that of the API, field by field."""
    (job,) = json.loads(workloads_as([submission.job], OutputFormat.JSON))["items"]
    body = {
        "starts": submission.starts_in_s is not None,
        "startsInSeconds": submission.starts_in_s,
        "stopped": [
            {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name, "why": why}
            for ref, why in sorted(submission.disturbed.items(), key=lambda item: item[0].name)
        ],
        "status": job["status"],
    }
    return json.dumps(body, indent=2, allow_nan=False) + "\n"


def _text(path: str) -> str:
    if path == "-":
        data = sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise ValueError(f"--submit: {path} is larger than {MOST_BYTES} bytes")
    return data.decode("utf-8", "replace")
