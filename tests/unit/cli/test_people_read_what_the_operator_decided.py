# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The tables show what stands in the records, in words a person can act on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from builders import (
    NOW,
    a_gpu_node,
    a_job,
    a_pod,
    a_profile,
    a_service,
    a_slice,
    a_snapshot,
    gpu,
    reported,
)
from ullage.api.reasons import Reason
from ullage.api.slices import SlicePhase
from ullage.api.times import rfc3339
from ullage.cli import printing, tables
from ullage.cli.look import isolation_of
from ullage.cli.main import app
from ullage.cluster.records.pod import PodStage
from ullage.cluster.records.status import (
    Condition,
    DecisionRecord,
    Placement,
    RefusalLine,
    Sharing,
    SizeRecord,
)

WAITS = DecisionRecord(
    time=NOW,
    epoch=3,
    inputs_hash="abc123",
    chosen="",
    runner_up="",
    reason=Reason.PERCENT_LIMIT,
    message="needs 60 % of a device; the emptiest has 40 % left",
    refusals=(
        RefusalLine(
            reason=Reason.PERCENT_LIMIT, devices=2, nearest=gpu(), message="short of 20 points"
        ),
    ),
)


def _text(shown: RenderableType | None) -> str:
    assert shown is not None
    console = Console(width=240, force_terminal=False)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def test_the_overview_has_one_line_per_workload() -> None:
    job = a_job("train").status(
        phase="Running",
        nodes="node-1",
        sharing=Sharing(percent=40, memory_mib=100, predicted="2.5", observed="2.61"),
    )
    waiting = a_job("waits").status(phase="Pending", decision=WAITS)
    text = _text(tables.overview([job.build(), waiting.build(), a_service("web").build()], NOW))
    running = next(line for line in text.splitlines() if " train " in line)
    for word in ("Running", "node-1", "40%", "2.5x", "2.61x"):
        assert word in running
    assert "PercentLimit" in next(line for line in text.splitlines() if " waits " in line)
    assert "0/1 ready" in next(line for line in text.splitlines() if " web " in line)


def test_a_wide_overview_says_the_decision_too() -> None:
    waiting = a_job("waits").with_(tenant="vision", priority=7).status(decision=WAITS)
    plain = _text(tables.overview([waiting.build()], NOW))
    wide = _text(tables.overview([waiting.build()], NOW, wide=True))
    assert "vision" not in plain
    for word in ("vision", " 7 ", WAITS.message):
        assert word in wide


def test_an_empty_cluster_says_so() -> None:
    assert "nothing here yet" in _text(tables.overview([], NOW))


def test_why_names_what_binds_by_how_much_and_what_helps() -> None:
    condition = Condition(type="Admitted", status="False", reason="PercentLimit")
    waiting = a_job("waits").status(phase="Pending", decision=WAITS, conditions=(condition,))
    text = _text(tables.why(waiting.build()))
    for words in ("short of 20 points", gpu(), "40 % left", "what helps", "abc123", "Admitted"):
        assert words in text


def test_why_says_where_a_job_is_and_when_that_was_decided() -> None:
    """A job that never waited has no Event about its place."""
    placed = replace(WAITS, reason=Reason.PLACED, chosen="node-1/gpu-0 at 40 %", refusals=())
    text = _text(tables.why(a_job("train").status(phase="Running", decision=placed).build()))
    for words in ("node-1/gpu-0 at 40 %", "decided", rfc3339(NOW)):
        assert words in text


def test_why_says_when_nothing_was_decided_or_the_spec_is_unreadable() -> None:
    text = _text(tables.why(a_job("new").with_(invalid="spec.gpu: expected an object").build()))
    assert "no decision" in text
    assert "spec.gpu" in text


def test_why_says_how_many_members_an_elastic_gang_has_and_why() -> None:
    size = SizeRecord(
        since=NOW,
        reason=Reason.SHRUNK,
        message="train-1 is gone; goes on with 3 of 4 members from its checkpoint",
        room_since=NOW,
    )
    job = a_job("train").elastic(2, 4).status(decision=WAITS, replicas=3, size=size)
    text = _text(tables.why(job.build()))
    for words in ("3 of 2 to 4", "Shrunk: train-1 is gone", "it grows when that lasts"):
        assert words in text
    assert "members" not in _text(tables.why(a_job("fixed").status(decision=WAITS).build()))


def test_why_says_that_the_class_is_isolated_and_who_ends_it() -> None:
    mine, others = (
        replace(a_profile(name, workload_class="bad", namespace=namespace), uid=name)
        for name, namespace in (("mine", "default"), ("others", "elsewhere"))
    )
    told = Condition(
        type="Isolated",
        status="True",
        reason="ClassFaulted",
        message="bad-0 faulted node-1/GPU-a: Xid 31 (memory page fault)",
    )
    guilty = replace(mine, status=replace(mine.status, conditions=(told,)))
    job = a_job("bad").with_(workload_class="bad").status(decision=WAITS)
    seen = a_snapshot(job, guilty, others)
    text = _text(tables.why(job.build(), isolation_of(seen, job.build())))
    for words in ("bad: ClassFaulted", "Xid 31", "spec.faults.cleared"):
        assert words in text
    elsewhere = replace(others, status=guilty.status)
    innocent = a_snapshot(job, mine, elsewhere)
    assert isolation_of(innocent, job.build()) is None


def test_top_shows_every_device_and_its_tenants() -> None:
    pod = a_pod("train-0", stage=PodStage.RUNNING, node="node-1")
    slice_ = a_slice(pod, device=gpu(), percent=40)
    placed = Placement(
        key=slice_.key, pod="train-0", node="node-1", gpu=gpu(), percent=40,
        memory_mib=4096, epoch=1,
    )  # fmt: skip
    job = a_job("train").status(
        phase="Running",
        placement=(placed,),
        sharing=Sharing(percent=40, memory_mib=4096, predicted="2.5"),
    )
    node = a_gpu_node(desired=[slice_], observed=[reported(slice_, SlicePhase.ATTACHED)])
    text = _text(tables.top(a_snapshot(node, job, pod), NOW))
    tenant = next(line for line in text.splitlines() if "default/train" in line)
    for word in ("40%", "Attached", "2.5x"):
        assert word in tenant
    assert gpu(index=1) in text


def test_a_silent_node_is_marked() -> None:
    text = _text(tables.top(a_snapshot(a_gpu_node(heartbeat=NOW - 1000)), NOW))
    assert "silent for 16m" in text


@pytest.mark.parametrize("word", ["PercentLimit", "percentlimit", "Admitted"])
def test_explain_knows_reasons_and_conditions(word: str) -> None:
    assert _text(printing.explanation(word)).strip()


def test_an_unknown_word_is_answered_with_the_nearest() -> None:
    result = CliRunner().invoke(app, ["explain", "PercentLimits"])
    assert result.exit_code == 1
    assert "PercentLimit" in result.output


def test_a_missing_kubeconfig_is_one_clear_line() -> None:
    result = CliRunner().invoke(app, ["--kubeconfig", "/nonexistent", "status"])
    assert result.exit_code == 1
    assert "/nonexistent" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (400_000, "4d")]
)
def test_ages_read_as_kubectl_writes_them(seconds: float, said: str) -> None:
    assert tables.age(seconds) == said


SHARED = Sharing(
    percent=40,
    memory_mib=4096,
    predicted="1.12",
    predicted_upper="1.27",
    observed="1.15",
    latency_ms=38,
    attainment="0.993",
    group="G1",
    source="prior+gp",
    z="1.9",
    threshold="1.4",
    risk_used="0.003",
)


def test_top_shows_prediction_bound_observation_attainment_and_risk() -> None:
    pod = a_pod("train-0", stage=PodStage.RUNNING, node="node-1")
    slice_ = a_slice(pod, device=gpu(), percent=40)
    placed = Placement(
        key=slice_.key, pod="train-0", node="node-1", gpu=gpu(), percent=40,
        memory_mib=4096, epoch=1,
    )  # fmt: skip
    job = a_job("train").status(phase="Running", placement=(placed,), sharing=SHARED)
    text = _text(tables.top(a_snapshot(a_gpu_node(desired=[slice_]), job, pod), NOW))
    tenant = next(line for line in text.splitlines() if "default/train" in line)
    for word in ("1.12x", "1.27x", "1.15x", "99.3%", "0.3%"):
        assert word in tenant


def test_why_shows_model_group_margin_and_what_binds() -> None:
    refusal = RefusalLine(
        reason=Reason.PREDICTED_SLO_BREACH,
        devices=1,
        nearest=gpu(),
        message="default/chat would miss its objective by 12 points; G1, rows 11 of 32",
    )
    decision = replace(WAITS, refusals=(refusal,))
    job = a_job("train").status(phase="Running", decision=decision, sharing=SHARED)
    text = _text(tables.why(job.build()))
    for words in (
        "below 1.27x in 95 of 100",
        "1.9 sd, needs 1.4",
        "every class is known",
        "prior+gp",
        "38 ms",
        "default/chat would miss its objective by 12 points; G1, rows 11 of 32",
    ):
        assert words in text
