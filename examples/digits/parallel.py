# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Trains one network in several processes: ``python -m digits.parallel``.

Each rank computes its part of every batch and they sum their gradients, so the result is that of
one process. Who this is and where rank 0 listens stands in the variables that torchrun uses too:
RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Only rank 0 reads and writes checkpoints.

Exit codes: 0 finished; 143 told to stop, checkpoint saved; 2 a setting cannot be used; 75 another
rank was lost or never came; 1 anything else.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Final

import numpy as np

import ullage_run
from digits import data, fit
from digits.allreduce import PeerLost, TcpGroup
from digits.checkpoint import CheckpointUnusable, Store
from digits.plan import BadSetting, Plan, whole
from digits.rendezvous import JoinFailed, Membership, Stopped, join
from digits.training import State, Trainer

RETRY: Final = 75
"""EX_TEMPFAIL of sysexits.h: the same again may succeed."""
PORT: Final = 29_500
JOIN_SECONDS: Final = 300


def membership(environment: Mapping[str, str], plan: Plan) -> Membership:
    """Read who this rank is.

    Raises:
        BadSetting: RANK lies outside the group, or a number is none.
    """
    world = whole(environment, "WORLD_SIZE", 1)
    rank = whole(environment, "RANK", 0, least=0)
    if rank >= world:
        raise BadSetting(f"RANK={rank}: expected less than WORLD_SIZE={world}")
    return Membership(
        rank=rank,
        world=world,
        address=environment.get("MASTER_ADDR") or "127.0.0.1",
        port=whole(environment, "MASTER_PORT", PORT),
        fingerprint=plan.fingerprint,
        join_seconds=whole(environment, "JOIN_SECONDS", JOIN_SECONDS),
    )


def resume(trainer: Trainer, group: TcpGroup, store: Store) -> None:
    """Give every rank the state that rank 0 begins with, saved or new.

    Raises:
        CheckpointUnusable: rank 0 has a checkpoint that is not of this run.
        PeerLost: a rank did not answer.
    """
    if group.rank == 0:
        trainer.state = store.load() or trainer.state
    state = trainer.state
    message = np.concatenate(([state.step], state.theta, state.velocity))
    step, theta, velocity = np.split(group.broadcast(message), [1, 1 + len(state.theta)])
    trainer.state = State(step=int(step[0]), theta=theta.copy(), velocity=velocity.copy())
    if trainer.state.step:
        ullage_run.resumed(trainer.state.step)
        print(f"resumed at step {trainer.state.step}", flush=True)


def finish(trainer: Trainer, group: TcpGroup, store: Store) -> None:
    """Check that all ranks hold the same weights, then report them.

    Raises:
        PeerLost: a rank did not answer.
        RuntimeError: the weights differ.
    """
    if not np.array_equal(group.broadcast(trainer.state.theta), trainer.state.theta):
        raise RuntimeError(f"rank {group.rank} ended with other weights than rank 0")
    fit.report(trainer)
    if group.rank == 0:
        store.discard()


def train(environment: Mapping[str, str]) -> int:
    """Join the group and train.

    Returns:
        The exit code: finished or interrupted.

    Raises:
        BadSetting, CheckpointUnusable, DataMissing: this rank cannot begin.
        JoinFailed, PeerLost: the others are not there.
        Stopped: told to end while waiting for them.
    """
    plan = Plan.from_environment(environment)
    who = membership(environment, plan)
    digits = data.load()
    store = Store(plan.checkpoint_dir, plan.fingerprint)
    print(f"rank {who.rank} of {who.world}, rank 0 at {who.address}:{who.port}", flush=True)
    with contextlib.closing(join(who, stop=ullage_run.stopping)) as group:
        trainer = Trainer(plan, digits, group)
        resume(trainer, group, store)
        code = fit.fit(trainer, store)
        if code == fit.FINISHED:
            finish(trainer, group, store)
    return code


def main() -> int:
    """Train and turn what went wrong into an exit code.

    Returns:
        The exit code.
    """
    ullage_run.watch_sigterm()  # first: PID 1 without a handler ignores SIGTERM
    try:
        return train(os.environ)
    except (BadSetting, CheckpointUnusable, data.DataMissing) as error:
        print(error, file=sys.stderr)
        return 2
    except (JoinFailed, PeerLost) as error:
        print(error, file=sys.stderr)
        return RETRY
    except Stopped:
        print("interrupted before the first step")
        return fit.INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
