# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage trace``: requests for step traces, their results, and their files.

A trace stays in its pod. ``kubectl exec`` reads it with the user's own rights, so a user who may
not run programs in a pod cannot read its trace.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage import ports
from ullage.api.captures import TRACE_BYTES_MOST, TRACE_MOUNT, TRACE_SUFFIX
from ullage.api.labels import API_VERSION, SLOT_RESOURCE
from ullage.api.readers import JsonObject, WireError, objects, section, text
from ullage.api.words import TracedKind
from ullage.cli.forms import TraceForm
from ullage.cli.kinds import split
from ullage.cli.tables import BAD, GOOD, age, table_of
from ullage.cli.tables_tuning import plain
from ullage.cli.target import ClusterTarget
from ullage.cli.trace_files import SHARES, shares
from ullage.cluster.codecs.status import profile_request_status_to_wire
from ullage.cluster.projection.trace import project_profile_request
from ullage.cluster.records.trace import ProfileRequestRecord, RankCapture
from ullage.ports import ClusterPort, Forbidden, NotFound, Selector
from ullage.scheduling.observation.profile_requests import order_id

KINDS: Final = {
    "": TracedKind.TRAINING_JOB,
    **dict.fromkeys(("tj", "trainingjob", "trainingjobs"), TracedKind.TRAINING_JOB),
    **dict.fromkeys(("job", "jobs"), TracedKind.JOB),
    **dict.fromkeys(("jobset", "jobsets"), TracedKind.JOB_SET),
    **dict.fromkeys(("pytorchjob", "pytorchjobs"), TracedKind.PYTORCH_JOB),
    **dict.fromkeys(("trainjob", "trainjobs"), TracedKind.TRAIN_JOB),
}
"""Kinds of jobs by the words that kubectl accepts for them; a bare name is a TrainingJob."""
READS_FILE: Final = "import shutil,sys;shutil.copyfileobj(open(sys.argv[1],'rb'),sys.stdout.buffer)"
PYTHONS: Final = ("python3", "python")
"""Interpreters by which a program's container reads a file: it runs one of them."""
GZIP: Final = b"\x1f\x8b"
PIECE: Final = 1 << 20
Run = Callable[..., subprocess.Popen[bytes]]
"""Starts a program."""


class TraceError(Exception):
    """A trace cannot be requested or read; the text says why, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceTerms:
    """Options of a request."""

    steps: int = 5
    ranks: str = "Sample"
    stacks: bool = False
    shapes: bool = False


def job_of(given: str) -> tuple[TracedKind, str]:
    """Kind and name of a job, from ``NAME`` or ``KIND/NAME``.

    Raises:
        TraceError: it is of another kind, or has no name.
    """
    word, name = split(given)
    kind = KINDS.get(word.partition(".")[0])
    if kind is None or not name:
        known = ", ".join(sorted(word for word in KINDS if word and not word.endswith("s")))
        raise TraceError(f"{given!r}: write NAME, or one of {known} before /NAME")
    return kind, name


def request_body(given: str, namespace: str, terms: TraceTerms) -> JsonObject:
    """A ProfileRequest for a job, with a name that no other has.

    Raises:
        TraceError: the job is of a kind that is not traced.
    """
    kind, name = job_of(given)
    spec: dict[str, object] = {
        "jobRef": {"kind": kind.value, "name": name},
        "steps": terms.steps,
        "ranks": terms.ranks,
    }
    spec |= {key: True for key in ("stacks", "shapes") if getattr(terms, key)}
    return {
        "apiVersion": API_VERSION,
        "kind": ports.PROFILE_REQUEST.kind,
        "metadata": {
            "name": f"{name[:200].rstrip('.-')}-{secrets.token_hex(3)}",
            "namespace": namespace,
        },
        "spec": spec,
    }


async def created(cluster: ClusterPort, body: JsonObject) -> str:
    """Create a request; returns its name.

    Raises:
        ApiError: the API server refused or did not answer.
    """
    namespace = text(section(body, "metadata"), "namespace")
    made = await cluster.create(ports.PROFILE_REQUEST, body, namespace=namespace)
    return text(section(made, "metadata"), "name")


async def look_for(cluster: ClusterPort, namespace: str, name: str) -> ProfileRequestRecord:
    """A request.

    Raises:
        TraceError: there is none of this name, or it cannot be read.
        ApiError: the API server refused or did not answer.
    """
    try:
        raw = await cluster.get(ports.PROFILE_REQUEST, name, namespace=namespace)
        return project_profile_request(raw)
    except NotFound as error:
        text = f"no ProfileRequest {name} in namespace {namespace}: {error.message}"
        raise TraceError(text) from error
    except WireError as error:
        raise TraceError(f"ProfileRequest {name} cannot be read: {error}") from error


async def last_of(
    cluster: ClusterPort, namespace: str, kind: str, name: str
) -> ProfileRequestRecord | None:
    """The newest finished request for a job; ``None`` without one, or where it may not be read."""
    finished: list[ProfileRequestRecord] = []
    try:
        async for page in cluster.list_paged(ports.PROFILE_REQUEST, Selector(namespace=namespace)):
            finished += _finished_of(page.items, kind, name)
    except (Forbidden, NotFound):
        return None
    return max(finished, key=lambda request: request.status.completion_time, default=None)


def _finished_of(
    items: Iterable[JsonObject], kind: str, name: str
) -> Iterable[ProfileRequestRecord]:
    for raw in items:
        try:
            request = project_profile_request(raw)
        except WireError:
            continue  # kubectl describe shows what is wrong with it
        if request.status.is_over and (request.job_kind, request.job_name) == (kind, name):
            yield request


# -- results ----------------------------------------------------------------------------


def shown(request: ProfileRequestRecord) -> RenderableType:
    """The result of a request: a sentence, a line for each rank, and findings."""
    status = request.status
    parts: list[RenderableType] = [
        Text(plain(status.message), style=BAD if status.phase == "Failed" else GOOD)
    ]
    if status.ranks:
        parts.append(_ranks(request))
    for finding in status.result.findings if status.result is not None else ():
        parts.append(Text(f"{finding.reason.value}: {plain(finding.message)}"))
        parts.append(Text(f"  {finding.reason.what_to_do}", style="green"))
    return Group(*parts)


def progress(request: ProfileRequestRecord) -> Text:
    """The state of a request, in one line."""
    return Text(f"{request.status.phase}: {plain(request.status.message)}")


def for_scripts(request: ProfileRequestRecord, form: TraceForm) -> str:
    """The status of a request, as the API stores it."""
    body = {
        "namespace": request.ref.namespace,
        "name": request.ref.name,
        "status": profile_request_status_to_wire(request.status),
    }
    if form is TraceForm.YAML:
        return yaml.safe_dump(body, sort_keys=False)
    return json.dumps(body, indent=2) + "\n"


def last_line(request: ProfileRequestRecord, now: float) -> Text:
    """The last trace of a job, in one line."""
    status = request.status
    ago = age(now - status.completion_time)
    return Text(f"last trace ({request.ref.name}, {ago} ago): {plain(status.message)}")


def _ranks(request: ProfileRequestRecord) -> Table:
    status = request.status
    steps = {rank.rank: rank.step for rank in status.result.ranks} if status.result else {}
    table = table_of("RANK", "POD", "NODE", *SHARES, "STATE")
    for capture in status.ranks:
        step = steps.get(capture.rank) if capture.rank is not None else None
        table.add_row(
            "" if capture.rank is None else str(capture.rank),
            Text(plain(capture.pod)),
            Text(plain(capture.node)),
            *(shares(step) if step is not None else [""] * len(SHARES)),
            Text(plain(_state(capture)), style=GOOD if capture.state == "Done" else BAD),
        )
    return table


def _state(capture: RankCapture) -> str:
    if capture.reason is None:
        return capture.state
    return f"{capture.reason.value}: {capture.message}"


# -- files -------------------------------------------------------------------------


def files_of(request: ProfileRequestRecord, rank: int | None) -> list[RankCapture]:
    """The ranks that have a trace.

    Args:
        request: The request.
        rank: One of them; ``None`` = all.

    Raises:
        TraceError: there is none.
    """
    captures = [
        capture
        for capture in request.status.ranks
        if capture.state == "Done" and rank in (None, capture.rank)
    ]
    if not captures:
        which = "no rank" if rank is None else f"no rank {rank}"
        raise TraceError(f"{request.ref.name} has {which} with a trace: {request.status.message}")
    return captures


async def container_of(cluster: ClusterPort, namespace: str, pod: str) -> str:
    """The container of a pod that has the device.

    Raises:
        TraceError: the pod is gone, and its traces with it.
        ApiError: the API server refused or did not answer.
    """
    try:
        raw = await cluster.get(ports.POD, pod, namespace=namespace)
    except NotFound as error:
        raise TraceError(f"pod {pod} is gone, and its trace with it") from error
    containers = objects(section(raw, "spec"), "containers")
    for container in containers:
        limits = section(section(container, "resources"), "limits")
        if SLOT_RESOURCE in limits:
            return text(container, "name")
    return text(containers[0], "name")


def read_trace(
    target: ClusterTarget,
    request: ProfileRequestRecord,
    capture: RankCapture,
    container: str,
    file: Path,
    run: Run = subprocess.Popen,
) -> int:
    """Write the trace of a rank into a file; returns its bytes.

    Args:
        target: Cluster and user.
        request: The request.
        capture: The rank.
        container: Its container.
        file: The file; an existing one is replaced once the trace is complete.
        run: Starts ``kubectl``.

    Raises:
        TraceError: the container cannot be read, or sends something else.
        OSError: the file cannot be written.
    """
    name = f"{order_id(request.ref.uid, request.status.attempt)}-{capture.local_rank}{TRACE_SUFFIX}"
    complaint = ""
    for python in PYTHONS:
        words = (python, "-c", READS_FILE, f"{TRACE_MOUNT}/{name}")
        command = _exec(target, request.ref.namespace, capture.pod, container, words)
        beside = file.with_name(f".{file.name}.part")
        try:
            size, complaint = _received(target, command, beside, run)
            if not complaint:
                os.replace(beside, file)
                return size
        finally:
            beside.unlink(missing_ok=True)
    raise TraceError(f"{capture.pod}: {complaint}")


def _exec(
    target: ClusterTarget, namespace: str, pod: str, container: str, words: Sequence[str]
) -> list[str]:
    where = ["--context", target.context] if target.context else []
    return ["kubectl", *where, "--namespace", namespace, "exec", pod, "-c", container, "--", *words]


def _received(
    target: ClusterTarget, command: Sequence[str], file: Path, run: Run
) -> tuple[int, str]:
    """Bytes that were written, and what went wrong; empty = nothing."""
    # a list of kubeconfigs can be stated in the environment alone
    environment = os.environ | {"KUBECONFIG": target.kubeconfig}
    with tempfile.TemporaryFile() as complaints, file.open("wb") as written:
        try:
            process = run(command, stdout=subprocess.PIPE, stderr=complaints, env=environment)
        except FileNotFoundError:
            return 0, "kubectl is not on PATH"
        assert process.stdout is not None
        size, first = 0, b""
        with process:
            while piece := process.stdout.read(PIECE):
                first = first or piece[:2]
                size += len(piece)
                if size > TRACE_BYTES_MOST:
                    process.kill()
                    return size, f"it sends more than {TRACE_BYTES_MOST >> 20} MiB"
                written.write(piece)
        complaints.seek(0)
        lines = complaints.read(PIECE).decode(errors="replace").strip().splitlines()
    if process.returncode:
        return size, plain(lines[-1] if lines else f"kubectl ends with {process.returncode}")
    return size, "" if first == GZIP else "what it sends is no trace"
