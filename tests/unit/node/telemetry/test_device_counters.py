# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pynvml
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from fakes.nvml import FakeGpu, FakeNvml, PatientNvml
from ullage.process.metric_families import FiguresCollector
from ullage_node.devices.nvidia.gpm import NvmlSampler
from ullage_node.model.samples import DeviceSample, Metric, Samples, fingerprint_of
from ullage_node.telemetry.metrics import sample_figures

SM, DRAM, GRAPHICS = (
    pynvml.NVML_GPM_METRIC_SM_UTIL,
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL,
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL,
)
PCIE = pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC


def a_node(*gpus: FakeGpu) -> tuple[FakeNvml, NvmlSampler]:
    nvml = FakeNvml(*gpus)
    nvml.nvmlInit()
    return nvml, NvmlSampler(PatientNvml(nvml), lambda: [gpu.uuid for gpu in gpus])


async def test_two_samples_give_the_means_between_them() -> None:
    gpu = FakeGpu("GPU-a", 0, gpm={SM: 62.5, DRAM: 40.0, PCIE: 2.0})
    nvml, sampler = a_node(gpu)
    (first,) = await sampler.sample(1.0)
    assert (first.gpm, dict(first.ratios)) == (True, {})
    (second,) = await sampler.sample(2.0)
    assert dict(second.ratios) == {Metric.SM: 0.625, Metric.DRAM: 0.4}
    assert second.pcie_tx_kib_per_s == 2048
    assert second.pcie_rx_kib_per_s is None
    assert nvml.callers == {"MainThread", "nvml"}, "all but the test's own call on one thread"


async def test_a_device_without_counters_is_flagged_and_says_nothing() -> None:
    _, sampler = a_node(FakeGpu("GPU-a", 0, gpm=None, power_milliwatts=71_000))
    for now in (1.0, 2.0):
        (seen,) = await sampler.sample(now)
    assert (seen.gpm, dict(seen.ratios), seen.power_milliwatts) == (False, {}, 71_000)
    assert (seen.busy, seen.clock_ratio, seen.pcie_replays) == (None, None, None)
    assert fingerprint_of([seen]) is None


async def test_plain_readings() -> None:
    gpu = FakeGpu("GPU-a", 0, busy_percent=37, sm_mhz=990, sm_mhz_most=1980, pcie_replays=3)
    _, sampler = a_node(gpu)
    (seen,) = await sampler.sample(1.0)
    assert (seen.busy, seen.clock_ratio, seen.pcie_replays) == (0.37, 0.5, 3)


@pytest.mark.parametrize("nonsense", [math.nan, math.inf, -1.0, 250.0])
async def test_a_counter_that_is_no_percentage_is_absent(nonsense: float) -> None:
    _, sampler = a_node(FakeGpu("GPU-a", 0, gpm={SM: nonsense, DRAM: 100.4}))
    await sampler.sample(1.0)
    (seen,) = await sampler.sample(2.0)
    assert dict(seen.ratios) == {Metric.DRAM: 1.0}


async def test_samples_far_apart_or_out_of_order_are_not_compared() -> None:
    _, sampler = a_node(FakeGpu("GPU-a", 0, gpm={SM: 50.0}))
    readings = [await sampler.sample(now) for now in (1.0, 100.0, 99.0, 99.5)]
    assert [bool(one.ratios) for (one,) in readings] == [False, False, False, True]


async def test_a_lost_device_does_not_silence_the_others() -> None:
    lost, well = FakeGpu("GPU-a", 0, gpm={SM: 10.0}), FakeGpu("GPU-b", 1, gpm={SM: 20.0})
    _, sampler = a_node(lost, well)
    await sampler.sample(1.0)
    lost.absent = True
    one, two = await sampler.sample(2.0)
    assert (one.gpm, dict(two.ratios)) == (False, {Metric.SM: 0.2})
    lost.absent = False
    assert [bool(gpu.ratios) for gpu in await sampler.sample(3.0)] == [False, True]
    assert [bool(gpu.ratios) for gpu in await sampler.sample(4.0)] == [True, True]


async def test_a_library_that_does_not_answer_gives_nothing_and_buffers_go_back() -> None:
    nvml, sampler = a_node(FakeGpu("GPU-a", 0, gpm={SM: 10.0}))
    await sampler.sample(1.0)
    nvml.initialised = 0
    (gone,) = await sampler.sample(2.0)
    assert not gone.gpm
    nvml.initialised = 1
    await sampler.sample(3.0)
    await sampler.close()
    assert [one.freed for one in nvml.gpm_samples][-2:] == [True, True]


def a_sample(at: float, **ratios: float) -> DeviceSample:
    return DeviceSample(
        uuid="GPU-a",
        at_s=at,
        gpm=True,
        ratios={Metric(name): value for name, value in ratios.items()},
        power_milliwatts=100_000,
    )


def test_a_fingerprint_is_the_mean_and_keeps_unknown_apart_from_zero() -> None:
    print_ = fingerprint_of([a_sample(1, sm=0.2, graphics=0.9, dram=0), a_sample(2, sm=0.4)])
    assert print_ is not None
    assert (print_.sm_permille, print_.kernel_idle_permille) == (300, 100)
    assert (print_.dram_permille, print_.tensor_permille) == (1, 0), "zero measured, not measured"
    assert print_.power_milliwatts == 100_000


def test_only_means_that_lie_within_a_stretch_count() -> None:
    samples = Samples()
    samples.take(a_sample(at, sm=at / 100) for at in range(100))
    inside = samples.between("GPU-a", 90.0, 93.5)
    assert [one.at_s for one in inside] == [91, 92, 93]
    assert samples.between("GPU-b", 0, 100) == ()
    assert [one.at_s for one in samples.newest] == [99]


def test_what_a_device_does_not_say_has_no_series() -> None:
    registry = CollectorRegistry()
    old = DeviceSample(uuid="GPU-b", at_s=1.0, power_milliwatts=70_500)
    registry.register(FiguresCollector(lambda: sample_figures((a_sample(1.0, sm=0.25), old))))
    families = text_string_to_metric_families(generate_latest(registry).decode())
    seen = {
        (sample.name.removeprefix("ullage_device_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    assert seen == {
        ("gpm_ratio", "GPU-a", "sm"): 0.25,
        ("gpm_supported", "GPU-a"): 1,
        ("gpm_supported", "GPU-b"): 0,
        ("power_watts", "GPU-a"): 100,
        ("power_watts", "GPU-b"): 70.5,
    }
