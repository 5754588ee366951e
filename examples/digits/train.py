# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains the network in one process: ``python -m digits.train``.

Exit codes: 0 finished; 143 told to stop, checkpoint saved; 2 a setting cannot be used; 1 anything
else.
"""

from __future__ import annotations

import os
import sys

import ullage_run
from digits import data, fit
from digits.checkpoint import CheckpointUnusable, Store
from digits.plan import BadSetting, Plan
from digits.training import Trainer


def main() -> int:
    """Train, resuming where a checkpoint was left.

    Returns:
        The exit code.
    """
    ullage_run.watch_sigterm()  # first: PID 1 without a handler ignores SIGTERM
    try:
        plan = Plan.from_environment(os.environ)
        store = Store(plan.checkpoint_dir, plan.fingerprint)
        trainer = Trainer(plan, data.load())
        saved = store.load()
    except (BadSetting, CheckpointUnusable, data.DataMissing) as error:
        print(error, file=sys.stderr)
        return 2
    if saved is not None:
        trainer.state = saved
        ullage_run.resumed(saved.step)
        print(f"resumed at step {saved.step}", flush=True)
    code = fit.fit(trainer, store)
    if code == fit.FINISHED:
        fit.report(trainer)
        store.discard()
    return code


if __name__ == "__main__":
    sys.exit(main())
