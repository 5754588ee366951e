# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What /debug/snapshot gives reads back equal and gives the same plan; anything else is refused."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from builders import NOW, a_device_profile, a_gpu_node, a_job, a_node, a_policy, a_snapshot
from fakes.lesson_rig import GPU, profiles
from fakes.pool_watch import a_pool
from ullage.api.reasons import Reason
from ullage.api.schedulingpolicy import Quota, Tenant
from ullage.api.words import ReclaimWithinCohort
from ullage.app.fit_worker import FitTask, run_fit
from ullage.app.model_summary import digest
from ullage.app.replay import UnreadableSnapshot, from_json, main, to_json
from ullage.cluster.records.pool import LossRecord, PoolStatus
from ullage.cluster.records.snapshot import RefusedWrite, Snapshot
from ullage.scheduling.cycle.decide import decide
from ullage.scheduling.model.faults import WORKLOADS, Fault
from ullage.scheduling.model.plan import DecideSettings

LOSS = LossRecord(at_s=NOW, nodes=4, lost=2)
SETTINGS = DecideSettings(epoch=7, seed=3)


def busy() -> Snapshot:
    """Every table that a job's placing needs, and a learned model."""
    held = profiles()
    model = run_fit(
        FitTask(accelerator=GPU, previous=None, fit=True, wanted=(), classes=2, at_s=NOW), held
    ).model
    picture = a_snapshot(a_node(), a_gpu_node(), a_job("train"), a_device_profile())
    return replace(
        picture,
        profiles=held,
        models={GPU: model},
        pools={"spot-a": a_pool(status=PoolStatus(price=1.0, last_loss=LOSS, nodes=2), most=4)},
        creating=frozenset({("default", "b"), ("default", "a")}),
        refused_writes={
            ("Pod", "default", "x"): RefusedWrite(reason=Reason.CREATE_REFUSED, message="quota")
        },
        node_refusals={("uid", "GPU-0"): (1.0, 2.0)},
        refused_starts={("default", "train-0"): (1.0, 2.0)},
    )


def test_what_is_read_back_is_equal() -> None:
    snapshot = busy()
    back, now, settings = from_json(to_json((snapshot, NOW, SETTINGS)))
    assert (now, settings) == (NOW, SETTINGS)
    assert replace(back, models={}) == replace(snapshot, models={})
    assert digest(back.models[GPU]) == digest(snapshot.models[GPU])
    assert to_json((back, now, settings)) == to_json((snapshot, NOW, SETTINGS))


def test_quota_travels_too() -> None:
    quota = Quota(accelerator=GPU, nominal_quota=100, borrowing_limit=0)
    reclaim = ReclaimWithinCohort.ANY
    tenant = Tenant(name="a", quota=(quota,), cohort="c", reclaim_within_cohort=reclaim)
    snapshot = replace(busy(), policy=a_policy(tenants=(tenant,)))
    back, *_ = from_json(to_json((snapshot, NOW, SETTINGS)))
    assert back.policy == snapshot.policy
    assert back.policy.tenants[0].reclaim_within_cohort is reclaim


def test_it_gives_the_same_plan() -> None:
    snapshot = busy()
    back, *_ = from_json(to_json((snapshot, NOW, SETTINGS)))
    plans = [decide(one, NOW, SETTINGS) for one in (snapshot, back)]
    assert plans[0] == plans[1]
    assert plans[0].inputs_hash == plans[1].inputs_hash


def test_the_command_says_what_would_be_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_bytes(to_json((busy(), NOW, SETTINGS)))
    assert main([str(file)]) == 0
    assert "CreatePod" in capsys.readouterr().out


def test_what_is_set_aside_is_read_back_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    snapshot = busy()
    uid = next(iter(snapshot.workloads))
    fault = Fault(table=WORKLOADS, key=uid, text="OverflowError: date value out of range")
    settings = replace(SETTINGS, aside=(fault,))
    assert from_json(to_json((snapshot, NOW, settings)))[2] == settings
    file = tmp_path / "snapshot.json"
    file.write_bytes(to_json((snapshot, NOW, settings)))
    assert main([str(file)]) == 0
    assert f"set aside: workloads {uid}: OverflowError" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (pickle.dumps(1), "no JSON"),
        (b"[]", "no snapshot of version 1"),
        (orjson.dumps({"version": 1}), "KeyError"),
        (orjson.dumps({"version": 1, "now": 1, "settings": {}, "snapshot": []}), "an object"),
        (
            orjson.dumps({"version": 1, "now": 1, "settings": {}, "snapshot": {"version": "x"}}),
            "int is needed, not str",
        ),
    ],
)
def test_anything_else_is_refused_with_the_place(
    data: bytes, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnreadableSnapshot, match=text):
        from_json(data)
    file = tmp_path / "odd"
    file.write_bytes(data)
    assert main([str(file)]) == 1
    assert text in capsys.readouterr().err
