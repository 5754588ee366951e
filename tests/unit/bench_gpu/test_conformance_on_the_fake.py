# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The conformance subset of a real GPU, on the fakes: its assertions run everywhere."""

from __future__ import annotations

from bench.gpu.rig import Rig
from gpu import conformance


def test_the_device_names_itself(rig: Rig) -> None:
    conformance.the_device_names_itself(rig)
    assert "no GPU was used" in rig.device.facts.said()


def test_counters_are_fractions_of_the_peak(rig: Rig) -> None:
    conformance.counters_are_fractions_of_the_peak(rig)


def test_clients_are_proven_and_rounded_down(rig: Rig) -> None:
    conformance.clients_are_proven_and_rounded_down(rig)


def test_a_misspelt_directory_is_seen_as_not_attached(rig: Rig) -> None:
    conformance.a_misspelt_directory_is_seen_as_not_attached(rig)


def test_a_stopped_client_leaves_the_server_well(rig: Rig) -> None:
    conformance.a_stopped_client_leaves_the_server_well(rig)


def test_evictions_cause_no_fault(rig: Rig) -> None:
    conformance.evictions_cause_no_fault(rig, 3)
