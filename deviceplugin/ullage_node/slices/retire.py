# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Takes a node out of service: removes all our files, leaves running containers alone.

A container that restarts afterwards finds no CDI file and waits; this is the difference between an
uninstall and a restart of the agent. The administrator's own files (``emulated.json``) stay.
"""

from __future__ import annotations

from ullage_node.files import remove_empty
from ullage_node.model.devices import ShareDriver
from ullage_node.settings import PathSettings
from ullage_node.slices import checkpoint
from ullage_node.slices.cdi import CDIDirectory
from ullage_node.slices.steps import StepRecords
from ullage_node.times import TRASH_S


async def remove_everything(
    paths: PathSettings, cdi: CDIDirectory, steps: StepRecords, driver: ShareDriver
) -> None:
    """Remove CDI files, hook and slot files, step directories and the checkpoint.

    Call it after the device plugin has deregistered. It is idempotent.

    Raises:
        OSError: something could not be removed; call it again.
    """
    cdi.sweep(frozenset())
    steps.clear()
    await steps.trash.drain(TRASH_S)
    await driver.cleanup_all()
    checkpoint.remove(paths.checkpoint)
    for directory in (paths.checkpoint.parent, steps.trash.path, steps.path):
        remove_empty(directory)
