# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Namespace, context and output are chosen as with kubectl; pipes get whole lines."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from builders import a_job, a_snapshot
from ullage.cli import access, explanation, main, trace_requests
from ullage.cli.kinds import SHORT, words_of
from ullage.cli.target import ClusterTarget
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.values.streams import GPU_NODES, SCHEDULING_POLICIES, Stream
from ullage.kube.credentials import CredentialsError

CRDS = Path(__file__).parents[3] / "crds"
RUNNER = CliRunner()
CONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "here",
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
    "contexts": [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
        {"name": "bare", "context": {"cluster": "c", "user": "u"}},
    ],
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(CONFIG))
    return str(path)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Namespaces that were looked at; there is one job in each picture."""
    found: list[str] = []

    async def look(_: object, wanted: Sequence[Stream]) -> Snapshot:
        of_namespaces = [one for one in wanted if one not in (SCHEDULING_POLICIES, GPU_NODES)]
        found.extend({one.selector.namespace for one in of_namespaces})
        job = a_job("train", namespace="team-a").status(phase="Running").record
        return a_snapshot(job)

    allow_all(monkeypatch, look)
    return found


def allow_all(
    monkeypatch: pytest.MonkeyPatch,
    look: Callable[[object, Sequence[Stream]], Awaitable[Snapshot]],
) -> None:
    """Every look is allowed, and sees this."""

    async def as_allowed(
        target: object, wanted: Sequence[Stream], _: object
    ) -> tuple[Snapshot, dict[str, str]]:
        return await look(target, wanted), {}

    async def never_traced(*_: object) -> None:
        return None

    monkeypatch.setattr(access, "look", look)
    monkeypatch.setattr(access, "look_as_allowed", as_allowed)
    monkeypatch.setattr(explanation, "as_allowed", as_allowed)
    monkeypatch.setattr(trace_requests, "last_of", never_traced)


@pytest.mark.parametrize(
    ("words", "namespace"),
    [
        (("status",), "team-a"),
        (("--context", "bare", "status"), "default"),
        (("status", "-n", "other"), "other"),
        (("-n", "other", "status"), "other"),
        (("-n", "other", "status", "--namespace", "third"), "third"),
        (("status", "-A"), ""),
        (("why", "train"), "team-a"),
        (("cost",), "team-a"),
    ],
)
def test_a_namespace_is_that_of_the_command_else_of_the_context(
    kubeconfig: str, asked: list[str], words: tuple[str, ...], namespace: str
) -> None:
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, *words])
    assert told.exit_code == 0, told.output
    assert set(asked) == {namespace}


def test_a_namespace_and_all_of_them_do_not_go_together(kubeconfig: str, asked: list[str]) -> None:
    for words in (("status", "-A", "-n", "x"), ("-n", "x", "status", "-A")):
        told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, *words])
        assert told.exit_code == 1
        assert "all of them with -A" in told.output
    assert asked == []


def test_a_context_that_is_not_there_is_named_with_those_that_are(kubeconfig: str) -> None:
    with pytest.raises(CredentialsError, match="no context 'gone'; it has bare, here"):
        ClusterTarget(kubeconfig=kubeconfig, context="gone").namespace_or("")


READ: dict[str, Callable[[str], object]] = {"json": json.loads, "yaml": yaml.safe_load}


@pytest.mark.parametrize("form", READ)
@pytest.mark.parametrize("words", [("status",), ("why", "train")])
@pytest.mark.usefixtures("asked")
def test_scripts_get_the_status_of_the_api(
    kubeconfig: str, words: tuple[str, ...], form: str
) -> None:
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, *words, "-o", form])
    assert told.exit_code == 0, told.output
    body = READ[form](told.stdout)
    assert isinstance(body, dict)
    (item,) = body["items"]
    assert (item["kind"], item["metadata"]["name"]) == ("TrainingJob", "train")
    assert item["status"]["phase"] == "Running"


@pytest.mark.usefixtures("asked")
def test_names_are_what_kubectl_takes(kubeconfig: str) -> None:
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, "status", "-o", "name"])
    assert told.stdout == "trainingjob/train\n"


@pytest.mark.usefixtures("asked")
def test_tables_alone_are_watched(kubeconfig: str) -> None:
    words = ["--kubeconfig", kubeconfig, "status", "--watch", "-o", "json"]
    told = RUNNER.invoke(main.app, words)
    assert told.exit_code == 1
    assert "--watch prints tables only" in told.output


def test_a_watched_table_is_printed_when_it_changes(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = iter(["Pending", "Pending", "Running"])

    async def look(_: object, wanted: object) -> Snapshot:
        phase = next(phases, None)
        if phase is None:
            raise KeyboardInterrupt
        return a_snapshot(a_job("train").status(phase=phase).record)

    allow_all(monkeypatch, look)
    monkeypatch.setattr(access, "WATCH_S", 0.0)
    monkeypatch.setattr(access, "console", Console(width=200))
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, "status", "-w"])
    assert told.stdout.count("train") == 2
    assert told.stdout.index("Pending") < told.stdout.index("Running")


@pytest.mark.parametrize(
    ("words", "kind", "told"),
    [
        (("status", "-o", "name"), "Pod", "without pods, and those that share devices by a label"),
        (("status", "-o", "wide"), "SchedulingPolicy", "the tenant is the one that work names"),
        (("cost",), "SchedulingPolicy", "the tenant is the one that work names"),
        (("why", "train", "-o", "name"), "Pod", "without pods, and those that share devices"),
    ],
)
def test_what_the_user_may_not_list_is_said_and_the_rest_is_shown(
    kubeconfig: str,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    kind: str,
    told: str,
) -> None:
    async def look(
        _: object, wanted: Sequence[Stream], optional: Sequence[Stream]
    ) -> tuple[Snapshot, dict[str, str]]:
        assert kind in {stream.kind.kind for stream in wanted if stream in optional}
        return a_snapshot(a_job("train").record), {kind: 'User "u" cannot list it'}

    monkeypatch.setattr(access, "look_as_allowed", look)
    monkeypatch.setattr(explanation, "as_allowed", look)
    found = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, *words])
    assert found.exit_code == 0, found.output
    said = " ".join(found.stderr.split())
    assert told in said
    assert 'User "u" cannot list it' in said


@pytest.mark.slow
def test_a_pipe_gets_one_line_for_each_row() -> None:
    script = (
        "from ullage.cli.printing import console_for\n"
        "from ullage.cli.tables import table_of\n"
        "table = table_of('A', 'B')\n"
        "table.add_row('a' * 100, 'b' * 100)\n"
        "console_for().print(table)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={}
    )
    assert len(done.stdout.splitlines()) == 2


@pytest.mark.parametrize(
    ("asked_for", "streams"),
    [
        ("train", {"TrainingJob", "InferenceDeployment"}),
        ("tj/train", {"TrainingJob"}),
        ("TrainingJob/train", {"TrainingJob"}),
        ("trainingjobs.ullage.dev/train", {"TrainingJob"}),
        ("infd/train", {"InferenceDeployment"}),
    ],
)
def test_a_kind_and_a_name_ask_for_one_kind(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, asked_for: str, streams: set[str]
) -> None:
    wanted: list[Stream] = []

    async def look(_: object, streams: Sequence[Stream]) -> Snapshot:
        wanted.extend(streams)
        return a_snapshot(a_job("train", namespace="team-a").status(phase="Running").record)

    allow_all(monkeypatch, look)
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, "why", asked_for])
    named = {one.kind.kind for one in wanted if one.selector.fields == "metadata.name=train"}
    assert named == streams
    found = "TrainingJob" in streams
    assert told.exit_code == (0 if found else 1)
    assert ("team-a/train" in told.output) is found


@pytest.mark.parametrize("command", ["tuning", "why"])
@pytest.mark.parametrize("word", ["tune", "tuningjob", "TuningJobs"])
def test_a_search_is_asked_for_by_kind_and_name(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch, command: str, word: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(access, "asked", lambda *_: asked.append("looked"))
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, command, f"{word}/s"])
    assert "no TuningJob s in namespace team-a" in told.output
    assert asked == ["looked"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("tuning", "tj/s"), "'tj/s': write NAME, or one of tune, tuningjob, tuningjobs before"),
        (("drain", "tj/n"), "write NAME, or one of gn, gpunode, gpunodes, no, node, nodes before"),
        (("recommend", "tune/s"), "write NAME, or one of tj, trainingjob, trainingjobs before"),
        (("why", "tj/"), "write NAME"),
        (("why", "wp/x"), "wp is none of tj, trainingjob, trainingjobs, infd"),
        (("why", "x/y"), "x is none of tj"),
    ],
)
def test_a_name_of_another_kind_is_refused_with_the_words_that_go(
    kubeconfig: str, words: tuple[str, ...], complaint: str
) -> None:
    told = RUNNER.invoke(main.app, ["--kubeconfig", kubeconfig, *words])
    assert told.exit_code == 1
    assert complaint in " ".join(told.output.split())


def test_short_names_are_those_of_the_definitions() -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        names = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)["spec"]["names"]
        kind = names["kind"]
        if kind in SHORT:
            assert words_of(kind) == (names["shortNames"][0], names["singular"], names["plural"])


def test_help_names_the_short_names() -> None:
    for command, short in (
        ("why", "tj/NAME"), ("why", "infd/NAME"), ("why", "tune/NAME"), ("tuning", "tune/NAME"),
        ("recommend", "tj/NAME"), ("drain", "gn/NAME"), ("doctor", "gn/NAME"),
    ):  # fmt: skip
        told = RUNNER.invoke(main.app, [command, "--help"], env={"COLUMNS": "200"})
        assert short in told.output, command
