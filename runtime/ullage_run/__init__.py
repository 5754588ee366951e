# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The API between a program in a container and Ullage.

::

    import ullage_run

    if checkpoint:
        load(checkpoint)
        ullage_run.resumed(checkpoint.step)
    for batch in batches:
        train(batch)
        ullage_run.step(items=len(batch))
        if ullage_run.should_checkpoint():
            save()
            ullage_run.checkpointed()
        if ullage_run.stopping():
            raise SystemExit(143)

A server counts its requests with ``ullage_run.requests.observe(seconds)``.

Outside Ullage (``ULLAGE_STEPS`` unset) counting does nothing; SIGTERM is turned into a checkpoint
everywhere. Nothing here raises or needs more than the standard library. A program that never
reports where it resumed counts as started at step 0 each time.
"""

from __future__ import annotations

import os

from ullage.api.environment import ENV_STEPS
from ullage_run import requests
from ullage_run.notices import Notice, NoticeKind, StopSignal
from ullage_run.record import StepWriter

__all__ = [
    "Notice",
    "NoticeKind",
    "checkpointed",
    "on_notice",
    "requests",
    "resumed",
    "should_checkpoint",
    "sm_count",
    "step",
    "stopping",
    "watch_sigterm",
]

_writer = StepWriter(os.environ.get(ENV_STEPS))
_stop = StopSignal()

# Bound once: saves an attribute lookup in the user's inner loop.
step = _writer.step
sm_count = _writer.sm_count
resumed = _writer.resumed
watch_sigterm = _stop.watch
stopping = _stop.stopping
should_checkpoint = _stop.should_checkpoint
on_notice = _stop.on_notice


def checkpointed() -> None:
    """Record that a checkpoint was written: resets ``should_checkpoint`` and dates the record."""
    _stop.checkpointed()
    _writer.checkpointed()


os.register_at_fork(after_in_child=_writer.forget)
os.register_at_fork(
    before=_stop.before_fork, after_in_parent=_stop.after_fork, after_in_child=_stop.forget
)
