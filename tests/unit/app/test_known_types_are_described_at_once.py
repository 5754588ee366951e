# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The profile of a known type is made when a node has one, with rates and where these come from."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builders import NOW, a_device, a_device_profile, a_gpu_node, a_profile, a_snapshot
from builders_raw import raw_meta
from ullage.api.deviceprofile import DeviceProfile
from ullage.api.readers import JsonObject, WireError
from ullage.app.device_models import MANIFESTS, SOURCE, ModelTeller, known_devices
from ullage.app.fit_schedule import FitState
from ullage.app.times import MODEL_WRITE_S
from ullage.cluster.projection.rest import project_device_profile
from ullage.cluster.records.node import GPUNodeRecord
from ullage.cluster.records.profile import Method, ProfileStatus, SoloEntry
from ullage.kube.manifests.applied import device_profile_body
from ullage.scheduling.learning.estimates import estimated, gather
from ullage.scheduling.model.plan import CreateDeviceProfile

ITEMS = json.loads(MANIFESTS.read_text("utf-8"))["items"]
T4, L4 = "tesla-t4", "nvidia-l4"


def node(*models: str) -> GPUNodeRecord:
    return a_gpu_node(devices=[a_device(f"GPU-{one}", model=one) for one in models])


def stored(body: JsonObject) -> JsonObject:
    """The object as the API server gives it back."""
    metadata = dict(body["metadata"])  # type: ignore[call-overload]
    return {**body, "metadata": raw_meta(metadata["name"], uid="uid", namespace="")}


def written(teller: ModelTeller, *parts: object, now: float = NOW) -> list[CreateDeviceProfile]:
    found = teller.writes(a_snapshot(*parts), {}, now=now, epoch=3)  # type: ignore[arg-type]
    return [one for one in found if isinstance(one, CreateDeviceProfile)]


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item["metadata"]["name"])
def test_every_figure_is_taken_by_the_api_and_names_its_source(item: JsonObject) -> None:
    DeviceProfile.model_validate(item)
    annotations = item["metadata"]["annotations"]  # type: ignore[index]
    assert {f"{SOURCE}{field}" for field in item["spec"]} == set(annotations)  # type: ignore[attr-defined]
    record = project_device_profile(stored(item))
    rates = dict(record.peak_flops)
    assert 1e11 < record.memory_bytes_per_s < 1e13
    rising = [rates[name] for name in ("FP64", "FP32", "TF32", "FP16", "FP8") if name in rates]
    assert rising == sorted(rising)
    assert rates.get("BF16", rates.get("FP16")) == rates.get("FP16")
    # arithmetic for each byte, which tells a slip of a digit
    assert 5 < rates["FP32"] / record.memory_bytes_per_s < 120


def test_types_stand_once() -> None:
    assert len(known_devices()) == len(ITEMS)


def test_a_known_type_is_described_before_anything_is_learned() -> None:
    teller = ModelTeller(known_devices())
    (made,) = written(teller, node(T4, "made-up"))
    body = device_profile_body(made)
    assert body["metadata"]["annotations"].keys() == {  # type: ignore[index]
        f"{SOURCE}peakFlops", f"{SOURCE}memoryBytesPerSecond",
    }  # fmt: skip
    record = project_device_profile(stored(body))
    assert (record.memory_mib, record.memory_bytes_per_s) == (made.memory_mib, 320e9)
    assert dict(record.peak_flops)["FP16"] == 65e12
    assert written(teller, node(T4), now=NOW + 1) == []  # its write is on the way
    assert len(written(teller, node(T4), now=NOW + MODEL_WRITE_S)) == 1


def test_a_profile_that_someone_wrote_is_left_alone() -> None:
    assert written(ModelTeller(known_devices()), node(T4), a_device_profile(T4)) == []


def test_an_unknown_type_waits_for_something_to_learn() -> None:
    teller = ModelTeller(known_devices())
    found = teller.writes(
        a_snapshot(node("made-up")),
        {"made-up": FitState(accelerator="made-up")},
        now=NOW,
        epoch=3,
    )
    assert found == ()


def test_rates_of_known_types_carry_a_speed_over() -> None:
    solo = SoloEntry(device=T4, share=100, steps_per_second=2.0, samples=9)
    mine = replace(a_profile("mine", workload_class="mine"), status=ProfileStatus(solo=(solo,)))
    profiles = [
        project_device_profile(stored(device_profile_body(one)))
        for one in written(ModelTeller(known_devices()), node(T4, L4))
    ]
    world = a_snapshot(node(T4, L4), mine, *profiles)
    (found,) = estimated(mine, gather(world)["default"])
    assert (found.accelerator, found.method) == (L4, Method.ROOFLINE)
    assert 2.0 < found.steps_per_second < 8.0


def test_a_manifest_that_is_none_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    spec = {"memory": "1Gi", "peakFlops": {"fp32": "x"}}
    broken.write_text(json.dumps({"items": [{"metadata": {"name": "a"}, "spec": spec}]}))
    with pytest.raises(WireError, match="fp32"):
        known_devices(broken)
