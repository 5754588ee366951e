# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Names that a container sees: variables, mounts, files."""

from __future__ import annotations

from typing import Final

ENV_SLICE: Final = "ULLAGE_SLICE"
ENV_STEPS: Final = "ULLAGE_STEPS"
ENV_PERCENT: Final = "ULLAGE_PERCENT"
ENV_STRAGGLERS: Final = "ULLAGE_STRAGGLERS"
"""Policy for slow ranks; programs act on this value alone."""
REBALANCE: Final = "Rebalance"
STEPS_MOUNT: Final = "/run/ullage/steps"
LIBRARY_MOUNT: Final = "/run/ullage/python"
"""Where every container with a slice finds ``ullage_run``, read-only."""
PYTHON_PATH: Final = "PYTHONPATH"
HOOK_FOLDER: Final = f"{LIBRARY_MOUNT}/ullage_run/autostep"
"""On PYTHONPATH it makes each Python process load the step hook."""
STEPS_FILE: Final = "record"
ENV_LOADER: Final = "ULLAGE_LOADER"
"""Most workers of a data loader, then workers and prefetch of the last run: ``8,6,2``."""
ENV_LANE: Final = "ULLAGE_LANE"
"""Socket of the lane that the container shares; what is said there: ``ullage.api.lanes``."""
LANE_MOUNT: Final = "/run/ullage/lane"
LANE_SOCKET: Final = "socket"
ENV_LANE_MEMORY: Final = "ULLAGE_LANE_MEMORY"
"""Persistent and ephemeral memory as the owner asked for them, MiB: ``512,4096``."""
ENV_TRIAL: Final = "ULLAGE_TRIAL"
"""Name of the trial, the same in all its rungs: checkpoints are kept under it."""
ENV_TRIAL_EPOCHS: Final = "ULLAGE_TRIAL_EPOCHS"
"""The epoch that the program ends after."""
ENV_TRIAL_METRIC: Final = "ULLAGE_TRIAL_METRIC"
ENV_TRIAL_REPORT: Final = "ULLAGE_TRIAL_REPORT"
"""File for the values of the metric: the container's termination message."""
ENV_PARAMETER: Final = "ULLAGE_PARAMETER_"
"""Prefix of the variable of a parameter; the parameter's name follows."""
TRIAL_REPORT_HEADER: Final = "ullage-trial 1"
"""First line of a report; each other line is an epoch and a value."""
MOST_REPORT_BYTES: Final = 4096
"""What kubelet keeps of a termination message."""
