# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What is learned survives the API: status -> JSON -> status is the same, and fits the schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from builders_raw import raw_device_profile, raw_profile
from docs.generate.crds.definition import schema
from structure import list_faults, shape_faults, unknown_fields
from ullage.api.deviceprofile import DeviceProfile
from ullage.api.readers import WireError
from ullage.api.workloadprofile import WorkloadProfile
from ullage.cluster.codecs.profile import (
    device_model_from_wire,
    device_model_to_wire,
    profile_as_stored,
    profile_status_from_wire,
    profile_status_to_wire,
)
from ullage.cluster.projection.rest import project_device_profile, project_profile
from ullage.cluster.records.profile import (
    InterferenceEntry,
    Method,
    ProfileStatus,
    SoloEntry,
    Source,
    StepRow,
    ThroughputEntry,
)
from ullage.engines.admission.records import Fingerprint, Partner

SAMPLES = Path(__file__).parents[2] / "data" / "crd" / "status"
STATUS = schema(WorkloadProfile)["properties"]["status"]

fractions = st.none() | st.floats(0, 1)
amounts = st.none() | st.floats(0, 1e9)
ratios = st.none() | st.floats(0, 1e5)
steps = st.builds(
    StepRow,
    id=st.text("abc0123456789/", min_size=1, max_size=20),
    accelerator=st.sampled_from(["emulated", "h100"]),
    share=st.integers(1, 100),
    step_s=st.floats(1e-6, 1e4),
    at_s=st.floats(1e9, 2e9),
    partners=st.lists(
        st.builds(Partner, workload_class=st.sampled_from("xyz"), percent=st.integers(1, 100)),
        max_size=3,
    ).map(tuple),
    slowdown=ratios,
    max_slowdown=st.none() | st.floats(1, 100),
    requests_per_s=amounts,
    counterfactual=st.booleans(),
    probation=st.booleans(),
    violated=st.booleans(),
)
solos = st.builds(
    SoloEntry,
    device=st.sampled_from(["emulated", "h100"]),
    share=st.integers(1, 100),
    steps_per_second=st.floats(0, 1e6),
    fingerprint=st.builds(
        Fingerprint, sm=fractions, dram=fractions, kernel_idle=fractions, peak_memory_mib=amounts
    ),
    latency=st.sampled_from([(), ((0.5, 0.02), (0.99, 0.05))]),
    cs2=ratios,
    samples=st.integers(0, 1000),
)


speeds = st.builds(
    ThroughputEntry,
    accelerator=st.sampled_from(["emulated", "h100", "l4"]),
    steps_per_second=st.floats(0, 1e6),
    source=st.sampled_from(Source),
    method=st.sampled_from([one for one in Method if one is not Method.TYPICAL]),
    confidence=st.floats(0, 1),
    samples=st.integers(0, 1000),
    low=st.none() | st.floats(0, 1e6),
    high=st.none() | st.floats(0, 1e6),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(steps, max_size=5, unique_by=lambda row: row.id),
    solo=st.lists(solos, max_size=4, unique_by=lambda row: (row.device, row.share)),
    speeds=st.lists(speeds, max_size=3, unique_by=lambda row: row.accelerator),
    drift=st.floats(0, 1e3),
    novel=st.booleans(),
)
def test_what_was_written_reads_back_equal(
    steps: list[StepRow],
    solo: list[SoloEntry],
    speeds: list[ThroughputEntry],
    drift: float,
    novel: bool,
) -> None:
    status = ProfileStatus(
        source="Measured",
        source_hash="sha256:1",
        family="example/resnet",
        updated=1.5e9,
        drift_slower=drift,
        novel=novel,
        solo=tuple(solo),
        step_time=tuple(steps),
        interference=(InterferenceEntry(accelerator="h100", sensitivity=1.3, rows=2),),
        throughput=tuple(speeds),
        throughput_basis="abc",
        throughput_at=1.5e9 + 1,
    )
    stored = profile_as_stored(status)
    wire = profile_status_to_wire(status)
    assert profile_as_stored(stored) == stored
    assert shape_faults(STATUS, wire) == []
    assert not [*list_faults(STATUS, wire), *unknown_fields(STATUS, wire)]
    assert {row.id for row in stored.step_time} == {row.id for row in steps}


def test_the_sample_of_the_schema_is_read_without_loss() -> None:
    sample = yaml.safe_load((SAMPLES / "workloadprofile.yaml").read_text("utf-8"))["status"]
    again = profile_status_to_wire(profile_status_from_wire(sample))
    assert again == {name: value for name, value in sample.items() if value is not False}


def test_a_model_reads_back_as_written_and_fits_the_schema() -> None:
    sample = yaml.safe_load((SAMPLES / "deviceprofile.yaml").read_text("utf-8"))["status"]["model"]
    model = device_model_from_wire(sample)
    wire = device_model_to_wire(model)
    assert device_model_from_wire(wire) == model
    node = schema(DeviceProfile)["properties"]["status"]["properties"]["model"]
    assert shape_faults(node, wire) == []
    assert [one.threshold for one in model.thresholds] == [1.4, None]
    record = project_device_profile({**raw_device_profile(), "status": {"model": sample}})
    assert record.model == model


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"dramUtil": float("nan")}, r"spec\.solo\.dramUtil: nan must be a number from 0 to 1"),
        ({"stepsPerSecond": -1}, r"stepsPerSecond: -1 must be a number from 0 to"),
        ({"cs2": True}, r"cs2: expected a number, got bool"),
        ({"share": None}, r"share: expected a whole number"),
    ],
)
def test_a_bad_number_is_named(row: dict[str, Any], says: str) -> None:
    with pytest.raises(WireError, match=says):
        project_profile(raw_profile(solo=[{"device": "emulated", "share": 50, **row}]))


def test_two_rows_of_one_place_are_refused() -> None:
    row = {"device": "emulated", "share": 50, "stepsPerSecond": 3}
    assert len(project_profile(raw_profile(solo=[row, {**row, "share": 51}])).solo) == 2
    with pytest.raises(WireError, match=r"spec\.solo: the key .'emulated', 50. is there twice"):
        project_profile(raw_profile(solo=[row, {**row, "stepsPerSecond": 1e18}]))
    with pytest.raises(WireError, match=r"status\.solo: the key .'emulated', 50. is there twice"):
        project_profile(raw_profile() | {"status": {"solo": [row, row]}})
