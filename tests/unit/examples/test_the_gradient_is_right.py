# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest

from digits.data import CLASSES, PIXELS
from digits.network import Network

STEP = 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_against_finite_differences(seed: int) -> None:
    random = np.random.default_rng(seed)
    network = Network(hidden=5)
    theta = network.initial(seed) + random.normal(0, 0.1, network.size)
    images = random.random((7, PIXELS))
    labels = random.integers(CLASSES, size=7)
    _, gradient = network.loss_and_gradient(theta, images, labels)
    numeric = np.empty_like(gradient)
    for position in range(network.size):
        nudge = np.zeros_like(theta)
        nudge[position] = STEP
        above, _ = network.loss_and_gradient(theta + nudge, images, labels)
        below, _ = network.loss_and_gradient(theta - nudge, images, labels)
        numeric[position] = (above - below) / (2 * STEP)
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-6)


def test_gradients_of_parts_add_up_to_that_of_the_whole() -> None:
    random = np.random.default_rng(1)
    network = Network(hidden=8)
    theta = network.initial(1)
    images, labels = random.random((9, PIXELS)), random.integers(CLASSES, size=9)
    loss, whole = network.loss_and_gradient(theta, images, labels)
    parts = [network.loss_and_gradient(theta, images[i::3], labels[i::3]) for i in range(3)]
    assert sum(part[0] for part in parts) == pytest.approx(loss, rel=1e-12)
    np.testing.assert_allclose(sum(part[1] for part in parts), whole, atol=1e-12)


def test_scores_are_log_probabilities_even_of_huge_inputs() -> None:
    network = Network(hidden=3)
    scores = network.scores(network.initial(0) * 1e4, np.ones((2, PIXELS)))
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1.0)


def test_layers_are_views_into_one_vector() -> None:
    network = Network(hidden=4)
    theta = np.zeros(network.size)
    for number, layer in enumerate(network.layers(theta), start=1):
        layer[...] = number
    assert np.bincount(theta.astype(int)).tolist() == [0, PIXELS * 4, 4, 4 * CLASSES, CLASSES]
