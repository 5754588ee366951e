# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``kubectl ullage plan`` says how a model is spread, its costs, and the program's arguments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from builders import a_device_profile, a_snapshot
from ullage.cli import access
from ullage.cli.main import app

DIMENSIONS = (
    *("--layers", "32", "--hidden", "4096", "--heads", "32", "--kv-heads", "8"),
    *("--ffn", "14336", "--vocabulary", "128256", "--sequence", "8192", "--gated-ffn"),
    *("--global-batch", "128"),
)
NODES = (
    *("--devices", "32", "--devices-per-node", "8"),
    *("--device-link", "240", "--node-link", "21"),
)
DEVICE = ("--memory", "74G", "--peak-tflops", "312", "--memory-bandwidth", "2000")
ROWS = """name,forward_s,backward_s,activation_bytes,parameter_bytes,saved_bytes
tok_embeddings,0.01,0.02,1e7,1e9,
layers.0,0.1,0.2,1e7,1e9,2e7
layers.1,0.1,0.2,1e7,1e9,2e7
layers.2,0.3,0.6,1e7,1e9,2e7
lm_head,0.02,0.04,1e7,1e9,
"""
CHAIN = ("--microbatches", "16", "--devices", "2", "--devices-per-node", "2", "--memory", "14G")


def planned(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(app, ["plan", *arguments])


def test_a_table_has_the_plan_its_costs_and_the_arguments() -> None:
    result = planned(*DIMENSIONS, *NODES, *DEVICE, "--framework", "Megatron")
    assert result.exit_code == 0, result.output
    words = " ".join(result.stdout.split())
    for part in ("plan tensor ", "predicted", "between", "memory", "weights", "bubble", "next "):
        assert part in words
    assert "--efficiency is not stated" in words
    assert "--tensor-model-parallel-size" in words


def test_scripts_get_all_figures() -> None:
    result = planned(*DIMENSIONS, *NODES, *DEVICE, "-o", "json", "--efficiency", "0.8")
    body = json.loads(result.stdout)
    plan = body["plan"]
    assert plan["tensor"] * plan["pipeline"] * plan["data"] * plan["context"] == 32
    assert sum(plan["stages"]) == 32
    low, high = plan["predictedStepSecondsBetween"]
    step = plan["predictedStepSeconds"]
    assert (low, high) == (pytest.approx(0.9 * step), pytest.approx(1.1 * step))
    memory = plan["memoryBytes"]
    assert memory["total"] == pytest.approx(sum(memory.values()) / 2)
    assert memory["total"] <= 74e9
    assert sum(plan["partsOfStepSeconds"].values()) == pytest.approx(step)
    assert body["runnerUp"]["predictedStepSeconds"] >= step
    assert body["delivery"]["refused"]["reason"] == "Framework"
    wide = json.loads(planned(*DIMENSIONS, *NODES, *DEVICE, "-o", "json").stdout)["plan"]
    low, high = wide["predictedStepSecondsBetween"]
    assert high / low > 1.1 / 0.9


def test_figures_that_nobody_states_are_named_and_have_no_default() -> None:
    result = planned(*DIMENSIONS, "--devices", "32", "--devices-per-node", "8")
    assert result.exit_code == 1
    missing = "--memory, --peak-tflops, --memory-bandwidth, --device-link, --node-link"
    assert f"no plan without {missing};" in result.stderr
    alone = planned(
        *(*DIMENSIONS, *DEVICE, "--devices", "8", "--devices-per-node", "8"),
        *("--device-link", "240"),
    )
    assert alone.exit_code == 0, alone.stderr


def test_a_device_profile_of_the_cluster_states_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = a_snapshot(a_device_profile("gpu-x", 80_000))
    monkeypatch.setattr(access, "look_at", lambda *_: seen)
    result = planned(*DIMENSIONS, *NODES, "--accelerator", "gpu-x")
    assert result.exit_code == 1
    assert "no plan without --peak-tflops, --memory-bandwidth;" in result.stderr
    speed = ("--peak-tflops", "312", "--memory-bandwidth", "2000")
    assert planned(*DIMENSIONS, *NODES, *speed, "--accelerator", "gpu-x").exit_code == 0
    result = planned(*DIMENSIONS, *NODES, "--accelerator", "gpu-y")
    assert "no DeviceProfile gpu-y in this cluster (it has: gpu-x)" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--heads", "33"), "33 heads do not divide a width of 4096"),
        (("--layers", "1000000"), "layers must be a whole number"),
        (("--kv-heads", "0"), "kv_heads must be a whole number"),
        (("--node-link", "nan"), "bytes per second of a link must be a number above 0"),
        (("--peak-tflops", "inf"), "peak of a device must be a number above 0"),
        (("--memory", "much"), "is no amount such as 4Gi"),
        (("--memory", "1G"), "no plan: stage"),
        (("--global-batch", "1"), "a step has 1 microbatches or samples"),
        (("--microbatches", "4"), "--microbatches goes with --profile"),
        (("--profile", "x.csv"), "leave out the model"),
    ],
)
def test_hostile_options_get_a_clear_error(words: tuple[str, ...], message: str) -> None:
    result = planned(*DIMENSIONS, *NODES, *DEVICE, *words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_refusal_is_an_answer_for_scripts() -> None:
    result = planned(*DIMENSIONS, *NODES, *DEVICE, "--memory", "1G", "-o", "json")
    assert result.exit_code == 1
    refused = json.loads(result.stdout)["refused"]
    assert refused["constraint"] == "DeviceMemory"
    assert refused["need"] > refused["have"] == 1e9


def test_measured_layers_are_split_and_their_files_written(tmp_path: Path) -> None:
    table = tmp_path / "layers.csv"
    table.write_text(ROWS)
    words = (*CHAIN, "--device-link", "100", "--profile", str(table))
    result = planned(*words, "--framework", "TorchPipelining", "--files", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert "tok_embeddings to layers.1; layers.2 to lm_head" in " ".join(result.stdout.split())
    split = json.loads((tmp_path / "split.json").read_text())
    assert split["split_spec"] == {"layers.2": "BEGINNING"}
    assert len((tmp_path / "schedule.csv").read_text().splitlines()) == 2
    body = json.loads(planned(*words, "-o", "json", "--framework", "Torchtitan").stdout)
    assert [stage["layers"][0] for stage in body["plan"]["stages"]] == [
        "tok_embeddings",
        "layers.2",
    ]
    assert "tok_embeddings,layers.0,layers.1" in body["delivery"]["arguments"]
    rows = [dict(zip(ROWS.split("\n")[0].split(","), line.split(","), strict=True))
            for line in ROWS.splitlines()[1:]]  # fmt: skip
    as_json = tmp_path / "layers.json"
    as_json.write_text(
        json.dumps([{name: cell for name, cell in row.items() if cell} for row in rows])
    )
    again = planned(*CHAIN, "--device-link", "100", "--profile", str(as_json), "-o", "json")
    assert json.loads(again.stdout)["plan"] == body["plan"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a table has 1 to 512 layers, not 0"),
        ("[1]", "the table is no JSON list of objects"),
        ("[", "the table is no JSON"),
        ("name,forward_s\nlayers.0,1\n", "row 1 has no backward_s"),
        (ROWS.replace("0.3", "nan"), "row 4: forward_s of layer layers.2 must be a number"),
        (ROWS.replace("0.3", "-1"), "row 4: forward_s of layer layers.2 must be a number"),
        (ROWS.replace("0.3", "fast"), "row 4, forward_s: 'fast' is no number"),
        (ROWS.replace("layers.2", "a;b"), "names of layers have letters, digits, _ and . only"),
        (ROWS.replace("layers.2", "layers.1"), "two layers are named layers.1"),
        (ROWS.replace("saved_bytes", "price"), "'price' is none of name, forward_s"),
        (ROWS.splitlines()[0] + "\n" + "a,1,1,1,1,1\n" * 600, "not 600"),
        (ROWS.replace("\n", ",7,8\n", 2), "is none of name"),
    ],
)
def test_tables_that_hold_no_layers_are_refused(tmp_path: Path, text: str, message: str) -> None:
    table = tmp_path / "layers.csv"
    table.write_text(text)
    result = planned(*CHAIN, "--device-link", "100", "--profile", str(table))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    words = (*CHAIN, "--device-link", "100", "--profile")
    assert "No such file" in planned(*words, str(tmp_path / "none")).stderr
    table = tmp_path / "layers.csv"
    table.write_bytes(b"\xff\xfe")
    assert "is no UTF-8 text" in planned(*words, str(table)).stderr
    table.write_text(ROWS)
    result = planned(
        *(*words, str(table), "--framework", "TorchPipelining"),
        *("--files", str(tmp_path / "nowhere")),
    )
    assert result.exit_code == 1
    assert "No such file" in result.stderr
