# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What a context costs is the DeviceProfile's to say; a slice carries it to the node."""

from __future__ import annotations

import pytest

from builders import a_device, a_device_profile, a_gpu_node, a_job
from fakes.deciding import decided
from ullage.api.devices import Backend
from ullage.api.slices import DesiredSlice
from ullage.scheduling.inventory.inventory import DEFAULT_CONTEXT_OVERHEAD_MIB


@pytest.mark.parametrize(
    ("backend", "profile_mib", "said_mib"),
    [
        (Backend.MPS2, 300, 300),
        (Backend.MPS2, 0, DEFAULT_CONTEXT_OVERHEAD_MIB),
        (Backend.EMULATED, 0, 0),
        (Backend.EMULATED, 40, 40),
    ],
    ids=["measured", "not measured", "emulated", "emulated, stated"],
)
def test_a_slice_says_what_its_context_was_counted_with(
    backend: Backend, profile_mib: int, said_mib: int
) -> None:
    job = a_job().fractional(20, 40, memory_mib=1000)
    node = a_gpu_node(devices=[a_device(backend=backend)])
    profile = a_device_profile(context_overhead_mib=profile_mib)
    ((_, one),) = decided(node, profile, job, *job.pods()).slices()
    assert one.context_overhead_mib == said_mib
    assert DesiredSlice.from_wire(one.to_wire()) == one
    assert ("contextOverheadMiB" in one.to_wire()) == bool(said_mib)
