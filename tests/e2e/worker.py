# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A worker of pytest-xdist has a cluster of its own, in a network namespace of its own.

Files run side by side in this way, each as if it had the machine for itself.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Final

from demo.progress import run

CLONE_NEWNET: Final = 0x40000000
"""Of sched.h."""
HOME: Final = "LOCALCLUSTER_HOME"
DEFAULT_HOME: Final = "/var/lib/localcluster"
LOGS: Final = Path("build/e2e-logs")
EMPTY_CLUSTER: Final = "test_a_first_install_shares_devices.py"
"""Begins before Ullage is installed."""
LONGEST: Final = (
    EMPTY_CLUSTER,
    "test_a_tuning_job_finds_the_best_trial.py",
    "test_device_choice_acts.py",
    "test_a_service_scales_by_its_objective.py",
    "test_existing_workloads_share_devices.py",
    "test_a_job_in_tiers_runs.py",
    "test_elastic_gangs_change_their_size.py",
    "test_notice_moves_work_in_time.py",
    "test_an_idle_service_sleeps_and_wakes.py",
    "test_labelled_pods_are_admitted_by_webhook.py",
    "test_hostile_tenants_harm_only_themselves.py",
    "test_guard_pauses_neighbours.py",
    "test_golden_manifests.py",
    "test_a_service_is_batched.py",
    "test_refusals_say_why.py",
    "test_jobs_run_and_finish.py",
    "test_restarts_lose_nothing.py",
    "test_rounds_follow_the_policy.py",
    "test_accounts_may_do_what_is_documented.py",
    "test_a_gang_changes_in_place.py",
)
"""Files that workers begin with, the longest first: none is begun when all the others are done."""


def worker() -> str:
    """Name of this worker, empty in a process that runs all tests."""
    return os.environ.get("PYTEST_XDIST_WORKER", "")


def home_of(name: str) -> str:
    """State folder of a worker's cluster; short, because unix sockets are inside."""
    return f"{os.environ.get(HOME, DEFAULT_HOME)}-{name}"


def logs_of(name: str) -> Path:
    """Folder for the logs of a worker's cluster, or of the only one."""
    return LOGS / name


def enter_own_network(name: str) -> None:
    """Leave the machine's network for a new one; what this thread starts from now on is in it.

    Nothing outside of the machine can be reached from there.

    Raises:
        OSError: this process may not make a network namespace.
        CommandFailed: its loopback cannot be turned on.
    """
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    run("ip", "link", "set", "lo", "up")
    os.environ[HOME] = home_of(name)


def begin_early(file: str) -> int:
    """Where a file stands in the order in which workers take them."""
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)
