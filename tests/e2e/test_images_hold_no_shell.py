# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The images that all other files run hold no shell, no installer and no setuid program."""

from __future__ import annotations

from demo.images import TARGETS, build_all
from demo.progress import Progress
from release.images import excess


def test_images_hold_no_shell() -> None:
    archives = build_all(Progress())
    assert {target: excess(archives[target]) for target in TARGETS} == {
        name: [] for name in TARGETS
    }
