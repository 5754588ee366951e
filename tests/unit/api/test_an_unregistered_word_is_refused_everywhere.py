# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Words that choose code: schema, projection and agent know those of one registry, and no other."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

import orjson
import pytest

from builders import a_gpu_node, a_job, a_policy, a_snapshot
from builders_raw import raw_policy, raw_pool
from fakes.deciding import SETTINGS
from ullage.api import schedulingpolicy, trainingjob
from ullage.api.readers import WireError
from ullage.api.schedulingpolicy import RiskSettings
from ullage.api.trainingjob import read_training_spec
from ullage.api.words import PriceSourceType
from ullage.app import replay
from ullage.app.effects import effect_of
from ullage.cluster.cache.cluster import ClusterState
from ullage.cluster.projection.policy import project_policy
from ullage.cluster.records.policy import PolicyRecord
from ullage.cluster.values.streams import CAPACITY_POOLS
from ullage.engines.admission.predictors import PREDICTORS
from ullage.engines.allocation.policies import POLICIES
from ullage.engines.capacity import records as capacity
from ullage.prices.chosen import SOURCES
from ullage.process.environment import SettingsError
from ullage.scheduling.cycle.decide import decide
from ullage_node.devices.backend import BACKENDS, Hardware
from ullage_node.settings import load_settings
from unit.packaging.repository import ROOT

WORD = "Mosaic"
CHART = ROOT / "charts/ullage/values.schema.json"


def words(enum: type[StrEnum]) -> set[str]:
    return {one.value for one in enum}


def test_the_schema_knows_the_words_of_the_registries() -> None:
    assert words(schedulingpolicy.RiskPredictor) == set(PREDICTORS)
    assert words(schedulingpolicy.Objective) == set(POLICIES)
    assert words(PriceSourceType) == set(SOURCES)
    assert words(trainingjob.CostObjective) == set(capacity.OBJECTIVES)


def test_the_chart_and_the_settings_know_the_backends() -> None:
    stated = json.loads(CHART.read_text())["properties"]["node"]["properties"]["backend"]["enum"]
    assert stated == [one.value for one in BACKENDS] == [one.value for one in Hardware]


@pytest.mark.parametrize("spec", [{"objective": WORD}, {"risk": {"predictor": WORD}}])
def test_a_policy_with_another_word_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(WireError, match=r"'Mosaic' is none of .*(MinCostSLO|UtilisationSum)"):
        project_policy(raw_policy(**spec))


def test_no_record_holds_another_word() -> None:
    with pytest.raises(ValueError, match="'Mosaic' is none of Learned, UtilisationSum"):
        RiskSettings(predictor=WORD)
    with pytest.raises(ValueError, match="'Mosaic' is none of FIFO"):
        PolicyRecord(objective=WORD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"predictor":"UtilisationSum"', b'"predictor":"Mosaic"'),
        (b'"objective":"FIFO"', b'"objective":"Mosaic"'),
    ],
)
def test_a_snapshot_with_another_word_is_not_decided_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], before: bytes, after: bytes
) -> None:
    written = replay.to_json((a_snapshot(a_gpu_node(), a_policy(), a_job("a")), 9.0, SETTINGS))
    assert before in written
    file = tmp_path / "snapshot.json"
    file.write_bytes(written.replace(before, after))
    assert replay.main([str(file)]) == 1
    assert WORD in capsys.readouterr().err


def test_a_snapshot_of_before_there_were_words_names_its_predictor() -> None:
    inputs = a_snapshot(a_gpu_node(), a_policy(), a_job("a")), 9.0, SETTINGS
    raw = orjson.loads(replay.to_json(inputs))
    risk = raw["snapshot"]["policy"]["risk"]
    for learned, word in ((True, "Learned"), (False, "UtilisationSum")):
        risk.pop("predictor", None)
        risk["learned"] = learned
        assert replay.from_json(orjson.dumps(raw))[0].policy.risk.predictor == word


@pytest.mark.parametrize("word", PREDICTORS)
def test_every_predictor_decides(word: str) -> None:
    policy = replace(a_policy(), risk=RiskSettings(predictor=word))
    assert not decide(a_snapshot(a_gpu_node(), policy, a_job("a")), 9.0, SETTINGS).faults


def test_a_job_with_another_aim_of_cost_is_refused() -> None:
    with pytest.raises(WireError, match=r"cost.objective: 'Mosaic' is none of CostPerWork"):
        read_training_spec({"template": {}, "cost": {"objective": WORD}})


def test_a_pool_with_another_source_of_prices_is_invalid_and_no_one_is_asked() -> None:
    state = ClusterState(effect_of)
    raw = raw_pool(priceSource={"type": WORD, "mosaic": {}})
    state.upsert(CAPACITY_POOLS, raw, 1.0)
    (unread,) = state.freeze(2.0).unread
    assert "priceSource.type: 'Mosaic' is none of Static" in unread.text


def test_an_agent_with_another_backend_does_not_start() -> None:
    with pytest.raises(SettingsError, match="expected one of nvidia, emulated"):
        load_settings({"ULLAGE_NODE_NAME": "n", "ULLAGE_NODE_BACKEND": WORD})
