# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A trace completes a profile that the API takes; what it does not say is asked for."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest

from builders_raw import raw_meta
from fakes.cluster_port import FakeCluster
from ullage.cli import traces
from ullage.cli.forms import TraceKind
from ullage.cli.look import saved
from ullage.cli.profiles import ProfileError, exported, read, to_yaml
from ullage.cli.traces import Traced, joined, profile_of, summary
from ullage.cluster.projection.rest import project_profile
from ullage.ports import WORKLOAD_PROFILE

DATA = Path(__file__).parents[2] / "data" / "traces"
KINETO = (DATA / "kineto-two-steps.json").read_bytes()
CHAKRA = (DATA / "chakra-one-step.json").read_bytes()
SAID = Traced(kind=TraceKind.KINETO, workload_class="resnet", accelerator="nvidia-l4")
KNOWN = {"nvidia-l4"}


def made(data: bytes = KINETO, said: Traced = SAID) -> dict[str, Any]:
    return profile_of(data, said, "mine", "default", KNOWN)[0]


def test_a_kineto_trace_gives_a_speed_a_peak_and_an_op_table() -> None:
    profile = project_profile(made() | {"metadata": raw_meta("mine")})
    (solo,) = profile.solo
    assert (solo.device, solo.share, solo.steps_per_second) == ("nvidia-l4", 100, 100.0)
    assert solo.fingerprint.peak_memory_mib == pytest.approx(1_500_000 / 2**20)
    table = profile.op_table
    assert table is not None
    assert (table.accelerator, table.precision, len(table.ops)) == ("nvidia-l4", "FP16", 3)
    # addmm and mm take as long in all
    assert {table.ops[0].type, table.ops[1].type} == {"aten::addmm", "aten::mm"}


def test_an_execution_trace_needs_no_accelerator_and_gives_no_speed() -> None:
    profile = project_profile(
        made(CHAKRA, Traced(kind=TraceKind.CHAKRA, workload_class="resnet"))
        | {"metadata": raw_meta("mine")}
    )
    assert profile.solo == ()
    assert profile.op_table is not None
    assert profile.op_table.accelerator == ""


def test_a_packed_trace_is_the_same() -> None:
    assert made(gzip.compress(KINETO)) == made()


def test_the_op_table_travels_with_export_and_import() -> None:
    text = to_yaml(exported(project_profile(made() | {"metadata": raw_meta("mine")})))
    again = read(text, "mine", "default", KNOWN) | {"metadata": raw_meta("mine")}
    assert to_yaml(exported(project_profile(again))) == text
    assert "opTable" in text


@pytest.mark.parametrize(
    ("data", "said", "says"),
    [
        (
            KINETO,
            Traced(kind=TraceKind.KINETO, workload_class=""),
            "give the class of work with --class",
        ),
        (
            KINETO,
            Traced(kind=TraceKind.KINETO, workload_class="a"),
            r"name it with --accelerator \(the trace names nvidia-l4\)",
        ),
        (
            KINETO,
            Traced(kind=TraceKind.KINETO, workload_class="a", accelerator="nvidia-l40"),
            "accelerator 'nvidia-l40' is unknown here",
        ),
        (b"\xff\xfe\x00", SAID, "the file is no text: a trace in protobuf"),
        (b"\x1f\x8bnonsense", SAID, "no whole gzip archive"),
        (gzip.compress(KINETO)[:-9], SAID, "no whole gzip archive"),
        (b"not json", SAID, "the trace cannot be imported: the trace is no JSON"),
        (CHAKRA, SAID, "traceEvents: expected a list"),
    ],
)
def test_what_cannot_be_imported_is_said_with_what_to_do(
    data: bytes, said: Traced, says: str
) -> None:
    with pytest.raises(ProfileError, match=says):
        made(data, said)


def test_a_huge_trace_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MOST_BYTES", 1024)
    for data in (KINETO, gzip.compress(b" " * 4096)):
        with pytest.raises(ProfileError, match="more than 0 MiB: record fewer steps"):
            made(data)


def test_a_profile_that_is_there_is_completed_and_not_replaced() -> None:
    held = {
        "class": "resnet",
        "family": "vision",
        "solo": [
            {"device": "tesla-t4", "share": 100, "stepsPerSecond": 30},
            {"device": "nvidia-l4", "share": 100, "stepsPerSecond": 1},
        ],
    }

    async def main() -> tuple[str, FakeCluster]:
        cluster = FakeCluster()
        cluster.put(WORKLOAD_PROFILE, {"metadata": raw_meta("mine", uid="uid-mine"), "spec": held})
        return await saved(cluster, made(), joined), cluster

    done, cluster = asyncio.run(main())
    assert done == "completed"
    spec = cluster.calls[-1].body[1]["value"]
    assert {row["device"]: row["stepsPerSecond"] for row in spec["solo"]} == {
        "tesla-t4": 30,
        "nvidia-l4": 100.0,
    }
    assert (spec["family"], spec["opTable"]["accelerator"]) == ("vision", "nvidia-l4")


def test_a_profile_of_another_class_is_left_alone() -> None:
    with pytest.raises(ProfileError, match="is of class 'bert', the trace of 'resnet'"):
        joined({"class": "bert"}, made()["spec"])


def test_the_user_reads_what_the_trace_held() -> None:
    _, trace = profile_of(KINETO, SAID, "mine", "default", KNOWN)
    assert summary(trace) == "3 kinds of operations over 2 steps, 10 ms a step, mostly FP16"
