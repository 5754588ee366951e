# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster and prices of a simulation, as they are written on the command line."""

from __future__ import annotations

import pytest

from ullage_simulate.fleets import parsed_fleet, parsed_prices
from ullage_simulate.trace import JobTraceError


def test_types_and_numbers_are_read_and_the_same_type_adds_up() -> None:
    fleet = parsed_fleet("v100=8, k80=2,v100=1", {"v100": 2.0, "h100": 9.0}, per_node=4)
    assert dict(fleet.devices) == {"v100": 9, "k80": 2}
    assert fleet.per_node == 4
    assert fleet.prices["v100"] == 2.0


def test_a_cluster_has_as_many_devices_as_can_be_simulated() -> None:
    assert parsed_fleet("a=10000000", {}, per_node=8).devices["a"] == 10_000_000
    with pytest.raises(JobTraceError, match="a=10000001"):
        parsed_fleet("a=10000001", {}, per_node=8)


@pytest.mark.parametrize("text", ["=8", "a=", "a=-1", "a=1.5", "a=8,b", "a=١"])
def test_what_is_no_cluster_is_told(text: str) -> None:
    with pytest.raises(JobTraceError):
        parsed_fleet(text, {}, per_node=8)


def test_prices_are_finite_and_not_below_nothing() -> None:
    assert parsed_prices(["a=2.5", "b=0"]) == {"a": 2.5, "b": 0.0}
    for text in ("a=x", "a=-0.1", "a=inf", "a=nan"):
        with pytest.raises(JobTraceError, match="--price"):
            parsed_prices([text])
