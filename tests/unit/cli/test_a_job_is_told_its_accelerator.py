# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The table of a job's accelerators says what the status says, for a name or for a file."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from builders import a_device, a_device_profile, a_gpu_node, a_job, a_profile, a_snapshot
from ullage.api.trainingjob import CostAim
from ullage.cli.recommend import ManifestError, duration, job_of, recommendation
from ullage.cluster.records.profile import ProfileStatus, SoloEntry
from ullage.cluster.records.snapshot import Snapshot
from ullage.cluster.records.workload import WorkloadRecord
from ullage.engines.admission.records import Fingerprint

MANIFEST = """
apiVersion: ullage.dev/v1alpha1
kind: TrainingJob
metadata: {name: train, labels: {ullage.dev/class: resnet}}
spec:
  work: {steps: 36000}
  cost: {objective: CostPerWork, maxTime: 4h}
  template: {spec: {containers: [{name: main, image: example/train:1}]}}
"""


def world(per_type: int = 1) -> Snapshot:
    sizes = {"nvidia-l4": 24_000, "tesla-t4": 16_000, "nvidia-t400": 2_000}
    prices = {"nvidia-l4": 0.8, "tesla-t4": 0.5, "nvidia-t400": 0.1}
    rates = {"nvidia-l4": 5.0, "tesla-t4": 2.0, "nvidia-t400": 1.0}
    used = Fingerprint(peak_memory_mib=9_000)
    solo = tuple(
        SoloEntry(device=name, share=100, steps_per_second=rate, samples=5, fingerprint=used)
        for name, rate in sorted(rates.items())
    )
    profile = replace(a_profile("resnet", workload_class="resnet"), status=ProfileStatus(solo=solo))
    return a_snapshot(
        a_gpu_node(
            devices=[
                a_device(f"GPU-{n}-{at}", model=n, memory_mib=sizes[n])
                for n in sizes
                for at in range(per_type)
            ]
        ),
        profile,
        *(replace(a_device_profile(n, sizes[n]), price_per_hour=prices[n]) for n in sizes),
    )


def printed(job: WorkloadRecord, per_type: int = 1) -> str:
    console = Console(width=250, record=True, highlight=False)
    console.print(recommendation(world(per_type), job))
    return console.export_text()


def line(text: str, name: str) -> str:
    return next(one for one in text.splitlines() if one.startswith(name))


def test_the_table_names_time_cost_and_why_others_fall_off() -> None:
    text = printed(job_of(MANIFEST, "default"))
    assert text.splitlines()[1].startswith("nvidia-l4")
    best = line(text, "nvidia-l4")
    assert all(word in best for word in ("2.0 h", "1.60", "Measured", "9000 MiB", "Recommended"))
    slow, small = line(text, "tesla-t4"), line(text, "nvidia-t400")
    assert "OverTime" in slow
    assert "takes 5.00 h, at most 4.00 h allowed" in slow
    assert "MemoryTooLarge" in small
    assert "needs 9000 MiB of 2000 MiB" in small
    assert "of the whole training, 36000 steps" in text


def test_a_job_without_work_is_told_per_thousand_steps() -> None:
    text = printed(a_job().with_(workload_class="resnet").build())
    assert "of 1,000 steps" in text
    assert "spec.cost is not said" in text
    assert "3.3 min" in line(text, "nvidia-l4")


def test_other_numbers_of_devices_are_estimates_and_the_footer_says_by_which_law() -> None:
    text = printed(job_of(MANIFEST, "default"), per_type=4)
    double = next(one for one in text.splitlines() if one.split()[:2] == ["nvidia-l4", "2"])
    assert all(word in double for word in ("61.9 min", "Estimated", "CountChangesBatch"))
    assert "n x 0.97^log2(n) times as fast as one, each with a batch as large as now" in text


def test_an_elastic_gang_is_told_the_number_and_how_to_keep_to_it() -> None:
    bounds = (
        "elasticity: {minReplicas: 1, maxReplicas: 4}\n  checkpoint: {graceSeconds: 60}\n  cost"
    )
    elastic = MANIFEST.replace("cost", bounds)
    text = printed(job_of(elastic.replace("maxTime: 4h", "maxTime: 45m"), "default"), per_type=4)
    assert text.splitlines()[1].split()[:2] == ["nvidia-l4", "3"]
    assert "up to 4; spec.elasticity.maxReplicas 3 keeps it to the first row" in text


def test_a_file_and_the_object_get_the_same_answer() -> None:
    cost = CostAim(objective="CostPerWork", max_time_s=4 * 3600)
    there = a_job().with_(workload_class="resnet", work_steps=36_000, cost=cost).build()
    assert printed(there) == printed(job_of(MANIFEST, "default"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "the file is no YAML"),
        ("kind: Pod", "holds 0 TrainingJobs"),
        (f"{MANIFEST}---{MANIFEST}", "holds 2 TrainingJobs"),
        (
            MANIFEST.replace("CostPerWork", "Cheap"),
            "spec.cost.objective: 'Cheap' is none of CostPerWork",
        ),
        (MANIFEST.replace("4h", "4d"), "spec.cost.maxTime"),
        (MANIFEST.replace("template:", "form:"), "spec.template: missing"),
    ],
)
def test_a_file_that_cannot_be_judged_says_why(text: str, says: str) -> None:
    with pytest.raises(ManifestError, match=says):
        job_of(text, "default")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (0, "0 s"), (119, "119 s"), (120, "2.0 min"), (7_200, "2.0 h"), (2**18, "3.0 d")],
)
def test_durations_read_well(seconds: int | None, text: str) -> None:
    assert duration(seconds) == text
