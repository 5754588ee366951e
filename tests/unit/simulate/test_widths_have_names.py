# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Widths of trials are written as people write them."""

from __future__ import annotations

import pytest

from ullage.engines.tuning.speed_curves import Widths
from ullage_simulate.plots_tuning import COLOURS, _colour
from ullage_simulate.tuning import labels


def test_parts_of_a_device_are_fractions_and_devices_are_numbers() -> None:
    assert labels(Widths(per_device=4, devices=4)) == ["1/4", "1/3", "1/2", "1", "2", "3", "4"]
    assert labels(Widths(per_device=1, devices=1)) == ["1"]


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_the_narrowest_is_the_lightest_and_the_widest_the_darkest(count: int) -> None:
    colours = [_colour(place, count) for place in range(count)]
    assert colours[0] == COLOURS[0]
    assert count == 1 or colours[-1] == COLOURS[-1]
    places = [COLOURS.index(colour) for colour in colours]
    assert places == sorted(places)
