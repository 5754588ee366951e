# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The part of a workload's spec that says what Ullage adds inside its containers."""

from __future__ import annotations

from ullage.api.base import Model
from ullage.api.words import Inject


class Runtime(Model):
    """What Ullage adds inside the device container, beside the device itself."""

    inject: Inject = Inject.NEVER
    """Whether steps of torch programs are counted without a change to the image. `Auto` puts the
    mounted step hook first on PYTHONPATH, before the value that the template gives it; it acts only
    in a Python process that imports torch. A PYTHONPATH that the image itself sets is replaced:
    repeat it in the template. `Never` leaves the environment alone; the share is proven all the
    same."""
