# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage trace``: a request is created, waited for and read; files are fetched."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from builders_raw import (
    Raw,
    owner_reference,
    raw_adopted_pod,
    raw_gpu_node,
    raw_job,
    raw_meta,
    raw_pod,
)
from ullage.api.labels import API_VERSION, SLOT_RESOURCE
from ullage.cli import access, main, trace_requests
from ullage.cli.target import ClusterTarget
from ullage.cli.trace_requests import TraceError, TraceTerms, job_of, read_trace, request_body
from ullage.cluster.projection.trace import project_profile_request
from ullage.ports import POD, PROFILE_REQUEST, Forbidden, JsonObject, Kind, NotFound, Page, Selector

HOSTILE = "[red]\x1b[2J\u202e"
STEP = {"spanMicros": 1000, "computeMicros": 410, "communicationMicros": 220, "dataWaitMicros": 90}
DONE: Raw = {
    "phase": "Done",
    "message": "2 ranks, steps 1200-1204, compute 41 %",
    "attempt": 2,
    "completionTime": "2026-01-05T10:00:00Z",
    "window": {"firstStep": 1200, "lastStep": 1204},
    "ranks": [
        {"rank": 0, "pod": "digits-0", "node": "node-1", "bytes": 7, "state": "Done"},
        {"rank": 1, "pod": "digits-1", "node": "node-1", "localRank": 3, "state": "Done"},
        {
            "pod": "digits-2",
            "node": "node-2",
            "state": "Failed",
            "reason": "DiskFull",
            "message": HOSTILE,
        },
    ],
    "result": {
        "steps": 5,
        "alignment": "OneClock",
        "ranks": [{"rank": 0, "node": "node-1", "step": STEP}],
        "findings": [{"reason": "WaitsForData", "message": f"9 % {HOSTILE}"}],
    },
    "conditions": [
        {
            "type": "Complete",
            "status": "True",
            "reason": "TracePartial",
            "lastTransitionTime": "2026-01-05T10:00:00Z",
        }
    ],
}


def raw_request(name: str = "digits-1", **status: object) -> Raw:
    return {
        "apiVersion": API_VERSION,
        "kind": "ProfileRequest",
        "metadata": raw_meta(name),
        "spec": {"jobRef": {"kind": "TrainingJob", "name": "digits"}},
        "status": status,
    }


class Api:
    """Objects by kind and name; a request goes on at each look."""

    def __init__(self, *objects: Raw, course: Sequence[Raw] = ()) -> None:
        self.objects = {(raw["kind"], raw["metadata"]["name"]): raw for raw in objects}
        self.course = list(course)
        self.forbidden: set[Kind] = set()
        self.connections = 0

    async def create(self, kind: Kind, body: JsonObject, *, namespace: str = "") -> JsonObject:
        made = dict(body)
        made["metadata"] = raw_meta(str(dict(body)["metadata"]["name"]), namespace)  # type: ignore[index]
        self.objects[kind.kind, made["metadata"]["name"]] = made
        return made

    async def get(self, kind: Kind, name: str, *, namespace: str = "") -> JsonObject:
        held = self.objects.get((kind.kind, name))
        if held is None:
            raise NotFound(404, f"{kind.plural} {name} not found")
        if kind is PROFILE_REQUEST and self.course:
            held["status"] = self.course.pop(0)
        return held

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        if kind in self.forbidden:
            raise Forbidden(403, "no")
        items = [raw for (of, _), raw in self.objects.items() if of == kind.kind]
        yield Page(items=items, resource_version="1")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a command against an API server with these objects."""

    def run(*words: str, api: Api) -> Any:
        @asynccontextmanager
        async def connect(_: ClusterTarget) -> AsyncIterator[Api]:
            api.connections += 1
            yield api

        monkeypatch.setattr(ClusterTarget, "connect", connect)
        monkeypatch.setattr(access, "console", Console(width=200))
        monkeypatch.setattr("time.sleep", lambda _: None)
        return CliRunner().invoke(main.app, ["-n", "default", *words])

    return run


def test_a_job_is_traced_and_what_was_found_is_printed(told: Any) -> None:
    api = Api(course=[{}, {"phase": "Armed", "message": "2 pods trace steps"}, DONE])
    answer = told("trace", "digits", "--steps", "7", "--shapes", api=api)
    assert answer.exit_code == 0, answer.output
    ((_, name),) = api.objects
    assert name.startswith("digits-")
    assert api.objects["ProfileRequest", name]["spec"] == {
        "jobRef": {"kind": "TrainingJob", "name": "digits"},
        "steps": 7,
        "ranks": "Sample",
        "shapes": True,
    }
    assert "Armed: 2 pods trace steps" in answer.output
    assert "2 ranks, steps 1200-1204, compute 41 %" in answer.output
    assert "DiskFull" in answer.output
    assert "41 %" in answer.output
    assert "WaitsForData" in answer.output


def test_nothing_of_a_tenant_is_markup_or_reaches_the_terminal(told: Any) -> None:
    answer = told("trace", "get", "digits-1", api=Api(raw_request(**DONE)))
    assert "[red]" in answer.output
    assert "\x1b[2J" not in answer.output
    assert "\u202e" not in answer.output


def test_a_failed_trace_ends_with_its_reason_and_status_1(told: Any) -> None:
    failed = {"phase": "Failed", "message": "inject is Never: add runtime: {inject: Auto}"}
    answer = told("trace", "digits", api=Api(course=[failed]))
    assert answer.exit_code == 1
    assert "add runtime" in answer.output


def test_a_trace_that_takes_too_long_goes_on(told: Any) -> None:
    api = Api(course=[{"phase": "Pending", "message": "waits"}])
    answer = told("trace", "job", "digits", "--timeout", "0", api=api)
    assert answer.exit_code == 1
    assert "it goes on" in answer.output


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("digits", "TrainingJob"),
        ("tj/digits", "TrainingJob"),
        ("job/digits", "Job"),
        ("jobs.batch/digits", "Job"),
        ("jobset/digits", "JobSet"),
        ("pytorchjob/digits", "PyTorchJob"),
        ("trainjobs/digits", "TrainJob"),
    ],
)
def test_kinds_are_written_as_kubectl_takes_them(given: str, kind: str) -> None:
    assert job_of(given) == (kind, "digits")


@pytest.mark.parametrize("given", ["", "pod/digits", "job/", "what/digits"])
def test_another_kind_is_refused(given: str) -> None:
    with pytest.raises(TraceError, match="write NAME"):
        job_of(given)


def test_names_of_requests_fit_and_differ() -> None:
    bodies = [request_body("x" * 253, "default", TraceTerms()) for _ in range(2)]
    names = {str(dict(body)["metadata"]["name"]) for body in bodies}  # type: ignore[index]
    assert len(names) == 2
    assert max(map(len, names)) <= 253


def test_a_status_is_printed_for_scripts(told: Any) -> None:
    answer = told("trace", "get", "digits-1", "-o", "json", api=Api(raw_request(**DONE)))
    body = json.loads(answer.stdout)
    assert body["status"]["window"] == {"firstStep": 1200, "lastStep": 1204}


def test_a_request_that_is_not_there_is_an_error(told: Any) -> None:
    answer = told("trace", "get", "none", api=Api())
    assert answer.exit_code == 1
    assert "no ProfileRequest none" in answer.output


def test_why_names_the_last_trace(told: Any) -> None:
    old = {**DONE, "completionTime": "2026-01-04T10:00:00Z", "message": "an older one"}
    other = raw_request("other", **DONE)
    other["spec"]["jobRef"]["name"] = "letters"
    job = raw_job("digits", status={"phase": "Running"})
    api = Api(job, raw_request("a", **old), raw_request("b", **DONE), other, raw_request("open"))
    answer = told("why", "digits", api=api)
    assert answer.exit_code == 0, answer.output
    assert "last trace (b," in answer.output
    assert "an older one" not in answer.output


def test_why_needs_no_right_to_read_traces(told: Any) -> None:
    api = Api(raw_job("digits", status={"phase": "Running"}), raw_request(**DONE))
    api.forbidden.add(PROFILE_REQUEST)
    answer = told("why", "digits", api=api)
    assert answer.exit_code == 0, answer.output
    assert "last trace" not in answer.output


def test_why_reads_everything_over_one_connection(told: Any) -> None:
    node = raw_gpu_node("node-1")
    pod = raw_pod("digits-0", node="node-1", phase="Running")
    job = raw_job("digits", status={"phase": "Running"})
    api = Api(job, pod, node, raw_request("b", **DONE))
    answer = told("why", "digits", api=api)
    assert answer.exit_code == 0, answer.output
    assert "last trace (b," in answer.output
    assert api.connections == 1


def test_why_names_the_last_trace_of_a_job_of_another_kind(told: Any) -> None:
    pod = raw_adopted_pod("batch-0")
    pod["metadata"]["ownerReferences"] = [owner_reference("Job", "batch")]
    traced = raw_request("b", **DONE)
    traced["spec"]["jobRef"] = {"kind": "Job", "name": "batch"}
    api = Api(pod, traced, raw_request("other", **DONE))
    answer = told("why", "job/batch", api=api)
    assert answer.exit_code == 0, answer.output
    assert "last trace (b," in answer.output
    assert api.connections == 1


class Kubectl:
    """Answers ``kubectl exec`` with these bytes, and remembers the command."""

    def __init__(self, sent: bytes, status: int = 0, complaint: bytes = b"") -> None:
        self.sent, self.status, self.complaint = sent, status, complaint
        self.commands: list[Sequence[str]] = []

    def __call__(
        self, command: Sequence[str], *, stdout: int, stderr: Any, env: dict[str, str]
    ) -> Any:
        assert env["KUBECONFIG"] == "k"
        self.commands.append(command)
        stderr.write(self.complaint)
        stderr.flush()
        return Ended(self.sent, self.status)


class Ended:
    """A process that has ended."""

    def __init__(self, sent: bytes, status: int) -> None:
        self.stdout, self.returncode = io.BytesIO(sent), status

    def __enter__(self) -> Ended:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def kill(self) -> None:
        self.returncode = -9


def _read(kubectl: Kubectl, file: Path) -> int:
    request = project_profile_request(raw_request(**DONE))
    capture = request.status.ranks[1]
    target = ClusterTarget(kubeconfig="k", context="c")
    return read_trace(target, request, capture, "main", file, run=kubectl)  # type: ignore[arg-type]


def test_a_trace_is_read_with_the_users_own_kubectl(tmp_path: Path) -> None:
    kubectl = Kubectl(b"\x1f\x8btrace")
    assert _read(kubectl, tmp_path / "r.json.gz") == 7
    assert (tmp_path / "r.json.gz").read_bytes() == b"\x1f\x8btrace"
    (command,) = kubectl.commands
    words = "kubectl --context c --namespace default exec digits-1 -c main"
    assert " ".join(command[:9]) == words
    uid = raw_request()["metadata"]["uid"]
    assert command[-1] == f"/run/ullage/steps/trace/{uid}.2-3.json.gz"


@pytest.mark.parametrize(
    ("kubectl", "text"),
    [
        (Kubectl(b"", 1, b"first\nError from server (Forbidden): no\n"), "Forbidden"),
        (Kubectl(b"", 1), "ends with 1"),
        (Kubectl(b"<html>"), "no trace"),
        (Kubectl(b""), "no trace"),
    ],
)
def test_what_is_no_trace_leaves_no_file(kubectl: Kubectl, text: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=text):
        _read(kubectl, tmp_path / "r.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_container_that_sends_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_requests, "TRACE_BYTES_MOST", 100)
    with pytest.raises(TraceError, match="it sends more than"):
        _read(Kubectl(b"\x1f\x8b" + bytes(1000)), tmp_path / "r.json.gz")
    assert list(tmp_path.iterdir()) == []


def test_without_kubectl_the_answer_says_so(tmp_path: Path) -> None:
    def missing(*_: object, **__: object) -> subprocess.Popen[bytes]:
        raise FileNotFoundError

    with pytest.raises(TraceError, match="kubectl is not on PATH"):
        _read(missing, tmp_path / "r.json.gz")  # type: ignore[arg-type]


def test_files_of_all_ranks_are_written(
    told: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[tuple[str, str]] = []

    def reads(_: object, __: object, capture: Any, container: str, file: Path) -> int:
        read.append((capture.pod, container))
        file.write_bytes(b"x")
        return 1

    monkeypatch.setattr(trace_requests, "read_trace", reads)
    containers = [
        {"name": "sidecar"},
        {"name": "train", "resources": {"limits": {SLOT_RESOURCE: "1"}}},
    ]
    pods: list[Raw] = [
        {"kind": POD.kind, "metadata": raw_meta(f"digits-{at}"), "spec": {"containers": containers}}
        for at in range(2)
    ]
    words = ("trace", "get", "digits-1", "-o", "perfetto", "--folder", str(tmp_path))
    answer = told(*words, api=Api(raw_request(**DONE), *pods))
    assert answer.exit_code == 0, answer.output
    assert read == [("digits-0", "train"), ("digits-1", "train")]
    assert {path.name for path in tmp_path.iterdir()} == {
        "digits-1-rank-0.json.gz",
        "digits-1-rank-1.json.gz",
    }
    gone = told(*words, "--rank", "1", api=Api(raw_request(**DONE)))
    assert gone.exit_code == 1
    assert "its trace with it" in gone.output


def test_a_rank_without_a_trace_cannot_be_fetched(told: Any) -> None:
    words = ("trace", "get", "digits-1", "-o", "perfetto", "--rank", "9")
    answer = told(*words, api=Api(raw_request(**DONE)))
    assert answer.exit_code == 1
    assert "no rank 9 with a trace" in answer.output
