# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A search of bench.tuning_search by Ray Tune, on the same devices and under the same limits.

It runs in Ray's own environment and imports nothing else but the program of the trials: what to do
comes from the environment as JSON, and one line of JSON on standard output says what was done. A
device is a GPU to Ray, which places a part of one on one device. An actor limits itself by the hook
that limits containers, before it reads its data.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import HyperBandScheduler, ResourceChangingScheduler
from ray.tune.schedulers.resource_changing_scheduler import DistributeResources

from digits import data
from digits.network import Network
from digits.tune import Trial, resumed, save

GIVEN = json.loads(os.environ["BENCH_SEARCH"])
RUNGS = GIVEN["rungs"]
NAME = "trial.npz"
STORE_BYTES = 80 * 2**20
"""About the least that Ray takes; trials do not use the store."""
LOOPBACK = "127.0.0.2"
"""Ray takes 127.0.0.1 for an address to look up."""
TIE = 1e-9
"""Of equal values Ray prefers the later trial, the engine the earlier one."""


def limit(trial: int, percent: int, core: int) -> None:
    """Give this process its part of a core, and that core alone, by the hook for containers.

    Raises:
        CalledProcessError: the hook refuses; its reason is on standard error.
    """
    for base in GIVEN["groups"]:
        group = Path(base) / f"trial-{trial}"
        for name, unlimited in (("cpu.cfs_quota_us", "-1"), ("cpu.max", "max")):
            if (group / name).exists():  # the hook never raises a limit that stands
                (group / name).write_text(unlimited)
        (group / "cgroup.procs").write_text(str(os.getpid()))
    quota_us = percent * GIVEN["quota_us_per_percent"]
    subprocess.run(
        [GIVEN["hook"], f"slot-{trial}", str(quota_us), str(core)],
        input=json.dumps({"ociVersion": "1.2.0", "id": "c", "pid": os.getpid()}),
        text=True,
        env={},
        check=True,
    )


def percent_of(resources) -> int:
    """Percent of a device that Ray gave."""
    return round(100 * resources.required_resources["GPU"])


class Training(tune.Trainable):
    """The trial of ``digits.tune``; a step is some epochs."""

    def setup(self, config):
        """Limit the process, then begin as the program does."""
        point = GIVEN["points"][config["trial"]]
        self._percent = percent_of(self.trial_resources)
        self._core = GIVEN["cores"][int(ray.get_gpu_ids()[0])]
        limit(config["trial"], self._percent, self._core)
        self._rate, self._network = float(point["rate"]), Network(int(point["hidden"]))
        self._file = Path(GIVEN["folder"]) / f"trial-{config['trial']}.npz"
        self._digits = data.load()
        self._trial = Trial.fresh(self._network)

    def step(self):
        """Train to the next report."""
        for _ in range(GIVEN["report_epochs"]):
            self._trial.train(self._network, self._digits, self._rate)
            save(self._file, self._trial)  # as often as the program does
        return {
            "budget": self._trial.epoch / RUNGS[0],
            "epoch": self._trial.epoch,
            "accuracy": self._trial.accuracy,
            "score": self._trial.accuracy - TIE * self.config["trial"],
        }

    def save_checkpoint(self, checkpoint_dir):
        """What Ray asks for when it pauses a trial."""
        save(Path(checkpoint_dir) / NAME, self._trial)

    def load_checkpoint(self, checkpoint):
        """Go on from there."""
        self._trial = resumed(Path(checkpoint) / NAME, self._network)


class OneBracket(HyperBandScheduler):
    """Successive halving: every trial is in the bracket of the most trials.

    Ray fills the brackets of few long trials first and has no setting for it.
    """

    def _create_bracket(self, s):
        return super()._create_bracket(self._s_max_1 - 1)


class Resizing(ResourceChangingScheduler):
    """Ray's own, which waits for ever for a trial that it stopped to resize under HyperBand.

    HyperBandScheduler resumes the trials that it paused itself and no other.
    """

    def on_trial_result(self, tune_controller, trial, result):
        """Decide as Ray does, and let a trial go on that is to be resized."""
        decision = super().on_trial_result(tune_controller, trial, result)
        if trial in self._trials_to_reallocate:
            bracket, _ = self._base_scheduler._trial_info[trial]
            bracket.trials_to_unpause.add(trial)
        return decision


class Notes(tune.Callback):
    """What happened when, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self.starts = []
        self.results = []

    def on_trial_start(self, iteration, trials, trial, **info):
        """The actor of a trial is there."""
        percent = percent_of(trial.placement_group_factory)
        self.starts.append([time.monotonic(), trial.config["trial"], percent])

    def on_trial_result(self, iteration, trials, trial, result, **info):
        """A trial has reported."""
        row = [trial.config["trial"], result["epoch"], result["accuracy"]]
        self.results.append([time.monotonic(), *row])


def scheduler():
    """Successive halving by epochs; trials are resized where there is a step to grow by."""
    halving = OneBracket(
        time_attr="budget",
        max_t=RUNGS[-1] // RUNGS[0],
        reduction_factor=GIVEN["eta"],
        stop_last_trials=True,
    )
    step = GIVEN["step_percent"]
    if not step:
        return halving
    grow = DistributeResources(
        increase_by={"GPU": step / 100}, increase_by_times=(100 - GIVEN["percent"]) // step
    )
    return Resizing(halving, grow)


def search() -> Notes:
    """Run the trials to their end.

    Raises:
        RuntimeError: a trial failed.
    """
    notes = Notes()
    base = tune.PlacementGroupFactory([{"GPU": GIVEN["percent"] / 100}])
    tuner = tune.Tuner(
        tune.with_resources(Training, base),
        param_space={"trial": tune.grid_search(list(range(len(GIVEN["points"]))))},
        tune_config=tune.TuneConfig(
            scheduler=scheduler(), metric="score", mode="max", reuse_actors=False
        ),
        run_config=tune.RunConfig(
            name="search", storage_path=GIVEN["folder"], callbacks=[notes], verbose=0
        ),
    )
    found = tuner.fit()
    if found.errors:
        raise RuntimeError(f"{len(found.errors)} trials failed: {found.errors[0]}")
    return notes


def main() -> None:
    """Search once; SIGTERM ends it with all that Ray has started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    ray.init(
        address="local",
        num_cpus=len(GIVEN["cores"]),
        num_gpus=len(GIVEN["cores"]),
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.WARNING,
        object_store_memory=STORE_BYTES,
        _node_ip_address=LOOPBACK,
        _temp_dir=GIVEN["folder"],
    )
    try:
        notes = search()
    finally:
        ray.shutdown()
    print(json.dumps({"starts": notes.starts, "results": notes.results}), flush=True)


if __name__ == "__main__":
    main()
