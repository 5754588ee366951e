# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Peak rates of known types of device, each with its source, from the DeviceProfiles beside it.

Rates of tensor cores are dense; FP64 and FP32 are those of the other cores. Memory is nominal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from ullage.api.deviceprofile import read_device_profile_spec
from ullage.api.readers import JsonObject, section
from ullage.cluster.codecs.objects import string_map
from ullage.cluster.records.profile import DeviceRates

MANIFESTS: Final = Path(__file__).with_name("deviceprofiles.json")
SOURCE: Final = "sources.ullage.dev/"
"""Annotations that name the source of a field of the spec."""
RATES: Final = ("memoryBytesPerSecond", "peakFlops")


def known_devices(manifests: Path = MANIFESTS) -> Mapping[str, DeviceRates]:
    """Rates by accelerator key.

    Raises:
        WireError: a manifest is no DeviceProfile.
    """
    listed = json.loads(manifests.read_text(encoding="utf-8"))
    return MappingProxyType({one["metadata"]["name"]: _rates(one) for one in listed["items"]})


def _rates(body: JsonObject) -> DeviceRates:
    spec = read_device_profile_spec(section(body, "spec"))
    said = string_map(section(body, "metadata"), "annotations")
    return DeviceRates(
        peak_flops=spec.rates_by_format(),
        memory_bytes_per_s=spec.memory_bytes_per_second,
        sources=tuple((field, said[f"{SOURCE}{field}"]) for field in RATES),
    )
