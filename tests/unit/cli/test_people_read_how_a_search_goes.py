# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage tuning``: trials by what they reached, curves, and forms for scripts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from builders_raw import CREATED, CREATED_S, Raw, owner_reference, raw_job, raw_tuning_job
from ullage.api.labels import (
    ANNOTATION_TRIAL_EPOCH,
    ANNOTATION_TRIAL_PARAMETERS,
    LABEL_TRIAL,
    LABEL_TUNING,
)
from ullage.cli import access, main, tables_tuning
from ullage.cli.forms import TrialOutput as Output
from ullage.cli.tables_tuning import MOST_CURVES, MOST_ROWS, plain, sparkline
from ullage.cli.target import ClusterTarget
from ullage.cli.tuning import TrialState, TuningView, for_scripts, look_for
from ullage.cluster.values.names import trial_run_name
from ullage.ports import TRAINING_JOB, TUNING_JOB, Kind, Page, Selector

NOW = CREATED_S + 600
HOSTILE = "[red]\x1b[2J\u202e=cmd"


def a_result(trial: int, epoch: int, value: float | None, **more: object) -> Raw:
    result: Raw = {"trial": trial, "epoch": epoch, **more}
    if value is not None:
        result["value"] = repr(value)
    if epoch == 1:
        result.setdefault("parameters", {"lr": f"0.0{trial + 1}", "width": str(16 + trial)})
    return result


def a_run(
    trial: int,
    epoch: int,
    *,
    tuning: str = "digits",
    uid: str = "",
    parameters: dict[str, str] | None = None,
    **status: object,
) -> Raw:
    stated = {"lr": "0.05", "width": "64"} if parameters is None else parameters
    return raw_job(
        trial_run_name(tuning, trial, epoch),
        status=dict(status),
        meta={
            "labels": {LABEL_TUNING: tuning, LABEL_TRIAL: str(trial)},
            "annotations": {
                ANNOTATION_TRIAL_EPOCH: str(epoch),
                ANNOTATION_TRIAL_PARAMETERS: json.dumps(stated),
            },
            "ownerReferences": [owner_reference("TuningJob", tuning, uid)],
        },
    )


class Listing:
    """An API server that lists, by label and by name."""

    def __init__(self, *objects: Raw) -> None:
        self.objects = objects

    async def list_paged(
        self, kind: Kind, selector: Selector, *, limit: int = 500
    ) -> AsyncIterator[Page]:
        del limit
        wanted = {"TuningJob": TUNING_JOB, "TrainingJob": TRAINING_JOB}
        items = [
            one
            for one in self.objects
            if wanted[one["kind"]] == kind
            and one["metadata"]["namespace"] == selector.namespace
            and selector.fields in ("", f"metadata.name={one['metadata']['name']}")
        ]
        yield Page(items=items, resource_version="1")


NINE = [a_result(trial, 1, value) for trial, value in enumerate((0.1, 0.9, 0.3, 0.8, 0.2))]
"""Results of five of nine trials at the first rung."""


async def seen(*runs: Raw, results: Sequence[Raw] = NINE, **more: Any) -> TuningView:
    tuning = raw_tuning_job(status={"phase": "Running", "results": list(results)}, **more)
    found = await look_for(Listing(tuning, *runs), "default", "digits", NOW)  # type: ignore[arg-type]
    assert found is not None
    return found


def shown(found: TuningView, *, wide: bool = False) -> str:
    console = Console(width=220, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_tuning.search(found, NOW, wide=wide))
    return capture.get()


def line(text: str, trial: int) -> list[str]:
    (found,) = [one for one in text.splitlines() if one.split()[:1] == [str(trial)]]
    return found.split()


async def test_groups_show_when_they_end_how_soon_they_could_and_what_they_use() -> None:
    groups = [
        {
            "name": "rung-0", "epoch": 1, "trials": 9, "ended": 5,
            "makespanETASeconds": 2460, "lowerBoundSeconds": 2280, "utilisation": "0.94",
        },
        {"name": "rung-1", "epoch": 3, "trials": 3, "ended": 0},
    ]  # fmt: skip
    tuning = raw_tuning_job(status={"phase": "Running", "results": NINE, "groups": groups})
    found = await look_for(Listing(tuning), "default", "digits", NOW)  # type: ignore[arg-type]
    assert found is not None
    lines = [one.split() for one in shown(found).splitlines()]
    assert ["GROUP", "EPOCH", "TRIALS", "ENDED", "MAKESPAN", "BOUND", "USED"] in lines
    assert ["rung-0", "1", "9", "5", "41m", "38m", "94%"] in lines
    assert ["rung-1", "3", "3", "0", "-", "-", "-"] in lines


async def test_states_are_those_that_the_operator_decides_by() -> None:
    rest = [a_result(5, 1, None, reason="TrialFailed"), a_result(6, 1, 0.5)]
    found = await seen(
        a_run(7, 1, phase="Running"), a_run(8, 1, phase="Pending"), results=[*NINE, *rest]
    )
    states = {row.trial: row.state for row in found.trials}
    assert states == dict.fromkeys((0, 1, 2, 3, 4, 6), TrialState.PAUSED) | {
        5: TrialState.FAILED,
        7: TrialState.RUNNING,
        8: TrialState.WAITING,
    }
    decided = [a_result(7, 1, 0.05), a_result(8, 1, 0.06), a_result(1, 3, 0.95)]
    found = await seen(a_run(3, 3, phase="Running"), results=[*NINE, *rest, *decided])
    states = {row.trial: row.state for row in found.trials}
    assert (states[3], states[6], states[1]) == (
        TrialState.RUNNING,
        TrialState.WAITING,
        TrialState.PAUSED,
    )
    assert {states[at] for at in (0, 2, 4, 7, 8)} == {TrialState.STOPPED}
    last = [a_result(3, 3, 0.5), a_result(6, 3, 0.4), a_result(1, 9, 0.99)]
    found = await seen(results=[*NINE, *rest, *decided, *last])
    assert found.trials[0].state is TrialState.COMPLETE
    assert found.trials[0].trial == 1


async def test_a_line_has_parameters_epoch_value_and_share() -> None:
    run = a_run(
        1,
        3,
        phase="Running",
        nodes="node-2",
        gpus=1,
        placement=[
            {
                "podUID": "u", "container": "main", "index": 0, "pod": "p", "node": "node-2",
                "gpu": "GPU-1", "percent": 25, "memoryMiB": 1024, "epoch": 1,
            }
        ],
        sharing={"percent": 25, "memoryMiB": 1024},
        decision={
            "time": CREATED, "epoch": 1, "chosen": "", "runnerUp": "",
            "reason": "Placed", "message": "on node-2",
        },
    )  # fmt: skip
    rest = [a_result(at, 1, 0.0) for at in (5, 6, 7, 8)]
    found = await seen(run, results=[*NINE, *rest])
    text = shown(found, wide=True)
    cells = line(text, 1)
    assert cells[:7] == ["1", "lr=0.02", "width=17", "1/3", "0.9", "25%", "Running"]
    assert cells[7] == "Placed"
    assert cells[-2:] == ["node-2", "digits-t0001-e3"]
    assert "SyncHalving maximizes accuracy" in text
    assert line(shown(found), 0)[3:7] == ["1/1", "0.1", "-", "Stopped"]


async def test_values_that_programs_reported_between_rungs_are_in_the_curve() -> None:
    run = a_run(
        3,
        9,
        phase="Succeeded",
        metrics=[{"epoch": 2, "value": "0.5"}, {"epoch": 4, "value": "0.7"}, {"epoch": 5}],
    )
    found = await seen(run)
    row = next(row for row in found.trials if row.trial == 3)
    assert row.curve == ((1, 0.8), (2, 0.5), (4, 0.7))
    assert sparkline(row) == "█▁▆"


async def test_a_label_alone_makes_no_trial() -> None:
    forged = a_run(4, 1, uid="uid-of-another", phase="Running")
    loose = a_run(6, 1, phase="Running")
    del loose["metadata"]["ownerReferences"]
    found = await seen(forged, loose, results=[])
    assert found.trials == ()
    assert "no trial has begun yet" in shown(found)


async def test_what_tenants_wrote_is_shown_as_it_is() -> None:
    space = [{"name": "kind", "type": "Categorical", "values": [HOSTILE, "plain"]}]
    hostile = a_result(0, 1, 0.5, parameters={"kind": HOSTILE})
    found = await seen(results=[hostile], searchSpace=space)
    for text in (shown(found), shown(found, wide=True)):
        assert r"kind=[red]\x1b[2J\u202e=cmd" in text
    console = Console(width=220, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_tuning.curves(found))
    assert "\x1b" not in capture.get()
    rows = list(csv.DictReader(io.StringIO(for_scripts(found, Output.CSV))))
    assert [row["params_kind"] for row in rows] == [HOSTILE]


@pytest.mark.parametrize(
    ("said", "cell"),
    [("=1+1", "'=1+1"), ("@x", "'@x"), ("-0.5", "-0.5"), ("+x", "'+x"), ("a,b\n", "a,b\n")],
)
async def test_no_cell_is_a_formula(said: str, cell: str) -> None:
    space = [{"name": "kind", "type": "Categorical", "values": [said, "plain"]}]
    found = await seen(results=[a_result(0, 1, 0.5, parameters={"kind": said})], searchSpace=space)
    (row,) = csv.DictReader(io.StringIO(for_scripts(found, Output.CSV)))
    assert row == {
        "trial": "0", "epoch": "1", "value": "0.5", "state": "Paused", "reason": "",
        "params_kind": cell,
    }  # fmt: skip


def test_text_that_cannot_be_printed_is_shown_by_its_code() -> None:
    assert plain("a\x00b\r\u2028é\ud800") == r"a\x00b\r\u2028é?"


async def test_scripts_get_the_status_and_every_trial() -> None:
    found = await seen(a_run(7, 1, phase="Running"))
    for read, form in ((json.loads, Output.JSON), (yaml.safe_load, Output.YAML)):
        body = read(for_scripts(found, form))
        assert (body["kind"], body["metadata"]["name"]) == ("TuningJob", "digits")
        assert len(body["status"]["results"]) == 5
        assert body["trials"][0] == {
            "trial": 7, "name": "digits-t0007", "parameters": {"lr": "0.05", "width": "64"},
            "epoch": 0, "untilEpoch": 1, "value": None, "state": "Running", "reason": "",
            "share": "", "nodes": "", "curve": [],
        }  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(for_scripts(found, Output.CSV))))
    assert [(row["trial"], row["epoch"], row["value"], row["params_width"]) for row in rows] == [
        ("0", "1", "0.1", "16"),
        ("1", "1", "0.9", "17"),
        ("2", "1", "0.3", "18"),
        ("3", "1", "0.8", "19"),
        ("4", "1", "0.2", "20"),
        ("7", "0", "", "64"),
    ]


async def test_parameters_that_a_client_stated_are_shown() -> None:
    found = await seen(
        results=[{"trial": 4, "epoch": 3, "value": "0.5"}],
        algorithm={"ref": "External", "maxEpochs": 9},
        suggestions=[{"trial": 4, "parameters": {"lr": "0.01", "width": "32"}, "epochs": [3]}],
    )
    (row,) = found.trials
    assert (dict(row.parameters), row.state) == ({"lr": "0.01", "width": "32"}, TrialState.PAUSED)


async def test_a_long_search_is_cut_where_people_read_it() -> None:
    results = [a_result(trial, 1, trial / 1000) for trial in range(60)]
    found = await seen(results=results, trials=1000)
    text = shown(found)
    assert len([one for one in text.splitlines() if "Paused" in one]) == MOST_ROWS
    assert f"and {60 - MOST_ROWS} more" in text
    assert line(text, 59)
    assert shown(found, wide=True).count("Paused") == 60


def drawn(found: TuningView) -> list[str]:
    console = Console(width=120, force_terminal=False)
    with console.capture() as capture:
        console.print(tables_tuning.curves(found))
    return capture.get().splitlines()


async def test_curves_are_drawn_the_best_first() -> None:
    results = [a_result(trial, 1, trial / 10) for trial in range(9)]
    results += [a_result(8, 3, 0.9), a_result(7, 3, 0.2), a_result(6, 3, 0.3)]
    text = drawn(await seen(results=results))
    chart = [one for one in text if "│" in one]
    assert (chart[0].split()[0], chart[-1].split()[0]) == ("0.9", "0.1")
    assert chart[0].endswith("A")
    legend = [one for one in text if " trial " in one]
    assert legend[0].startswith("A trial 8: 0.9")
    assert legend[1].startswith("B trial 6: 0.3")
    assert len(legend) == MOST_CURVES


@pytest.mark.parametrize(
    "values", [[0.5], [0.5, 0.5], [1.7e308, -1.7e308], [0.0], [-1e-308, 1e-308]], ids=str
)
async def test_any_values_can_be_drawn(values: list[float]) -> None:
    found = await seen(results=[a_result(at, 1, value) for at, value in enumerate(values)])
    assert len([one for one in drawn(found) if "│" in one]) == 12
    assert all(sparkline(row) == "▁" for row in found.trials)


async def test_nothing_to_draw_is_said() -> None:
    assert drawn(await seen(results=[])) == ["no trial has reported a value yet"]


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command against an API server that lists these objects."""

    def run(*words: str, objects: Sequence[Raw] = ()) -> Any:
        @asynccontextmanager
        async def connect(_: ClusterTarget) -> AsyncIterator[Listing]:
            yield Listing(*objects)

        monkeypatch.setattr(ClusterTarget, "connect", connect)
        return CliRunner().invoke(main.app, ["-n", "default", "tuning", *words])

    return run


A_SEARCH = raw_tuning_job(status={"phase": "Running", "results": NINE})


def test_the_command_prints_a_table_and_curves(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "console", Console(width=200))
    answer = told("digits", "--plot", "terminal", objects=[A_SEARCH])
    assert answer.exit_code == 0, answer.output
    assert "TuningJob default/digits" in answer.output
    assert "A trial 1: 0.9" in answer.output


def test_the_command_prints_csv_alone(told: Any) -> None:
    answer = told("digits", "-o", "csv", objects=[A_SEARCH])
    assert answer.stdout.splitlines()[0] == "trial,epoch,value,state,reason,params_lr,params_width"


@pytest.mark.parametrize(
    ("words", "objects", "text"),
    [
        (("none",), [A_SEARCH], "no TuningJob none in namespace default"),
        (("digits", "-w", "-o", "csv"), [A_SEARCH], "go with tables only"),
        (("digits", "-o", "json", "--plot", "terminal"), [A_SEARCH], "go with tables only"),
        (("digits",), [raw_tuning_job(trials="many")], "cannot be read: spec.trials"),
        (
            ("digits",),
            [raw_tuning_job(objective={"metric": "[/x]", "goal": "Maximize"})],
            "'[/x]'",
        ),
    ],
)
def test_what_cannot_be_answered_is_said(
    told: Any, words: tuple[str, ...], objects: list[Raw], text: str
) -> None:
    answer = told(*words, objects=objects)
    assert answer.exit_code == 1
    assert text in " ".join(answer.output.split())


def test_a_watched_search_is_printed_when_it_changes(
    told: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = count()

    def no_sleep(_: float) -> None:
        if next(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(access.time, "sleep", no_sleep)
    answer = told("digits", "--watch", objects=[A_SEARCH])
    assert answer.output.count("TuningJob default/digits") == 1


def test_a_picture_says_how_to_get_it_or_is_written(told: Any, tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    answer = told("digits", "--plot", str(path), objects=[A_SEARCH])
    if path.exists():
        assert path.read_bytes()[1:4] == b"PNG"
    else:
        assert "pip install 'ullage[simulate]'" in " ".join(answer.output.split())
