# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Series that make each alert fire, and series close to them that must not.

Series are written as promtool reads them, one value a minute: ``0+1x60`` grows by one for an hour,
``_x60`` is nothing for an hour.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DAY: Final = 24 * 60


@dataclass(frozen=True, slots=True)
class Case:
    """Series of an alert, each ``name{labels} values``; looked at ``minutes`` after the first."""

    fires: tuple[str, ...]
    silent: tuple[str, ...]
    minutes: int = 60


SLO: Final = "ullage_slo_windows_total"
MPS: Final = "ullage_mps_server_state"


def _windows(kept: int, broken: int) -> tuple[str, ...]:
    return (
        f'{SLO}{{workload_namespace="team-a",result="kept"}} 0+{kept}x{DAY}',
        f'{SLO}{{workload_namespace="team-a",result="broken"}} 0+{broken}x{DAY}',
    )


CASES: Final[dict[str, Case]] = {
    "UllageNoLeader": Case(
        fires=('ullage_leader{instance="b"} 0x60', 'ullage_leader{instance="a"} 0x60'),
        silent=('ullage_leader{instance="b"} 0x60',),
    ),
    "UllageTwoLeaders": Case(
        fires=('ullage_leader{instance="b"} 1x60',),
        silent=('ullage_leader{instance="b"} 0x60',),
    ),
    "UllageDecisionsStopped": Case(
        fires=('ullage_decision_age_seconds{instance="a"} 0+60x60',),
        silent=('ullage_decision_age_seconds{instance="a"} 0+1x60',),
    ),
    "UllageDecisionsFail": Case(
        fires=('ullage_cycles_failed_total{error="SolverCrashed"} 0+1x60',),
        silent=('ullage_cycles_failed_total{error="SolverCrashed"} 0x55 1x5',),
    ),
    "UllageDecisionTimeouts": Case(
        fires=("ullage_decision_timeouts_total 0x50 1x10",),
        silent=("ullage_decision_timeouts_total 3x60",),
    ),
    "UllageWatchStale": Case(
        fires=('ullage_reflector_synced{instance="a",kind="Pod"} 1x50 0x10',),
        silent=('ullage_reflector_synced{instance="b",kind="Pod"} 0x60',),
    ),
    "UllageWatchDrift": Case(
        fires=('ullage_reflector_resync_drift_total{kind="Pod"} _x70 1x20',),
        silent=('ullage_reflector_resync_drift_total{kind="Pod"} 1x90',),
        minutes=80,
    ),
    "UllageWritesFail": Case(
        fires=(
            'ullage_writes_total{verb="patch",kind="Pod",result="ok"} 0+10x60',
            'ullage_writes_total{verb="patch",kind="Pod",result="forbidden"} 0+5x60',
        ),
        silent=(
            'ullage_writes_total{verb="patch",kind="Pod",result="ok"} 0+10x60',
            'ullage_writes_total{verb="patch",kind="Pod",result="conflict"} 0+5x60',
        ),
    ),
    "UllageWriteBacklog": Case(
        fires=("ullage_write_queue_depth 5000x60",),
        silent=("ullage_write_queue_depth 0x55 5000x5",),
    ),
    "UllageWritesFenced": Case(
        fires=("ullage_fenced_writes_total 0x55 1x5",),
        silent=("ullage_fenced_writes_total 1x60",),
    ),
    "UllageObjectsSetAside": Case(
        fires=('ullage_set_aside{kind="workloads"} 1x60',),
        silent=('ullage_set_aside{kind="workloads"} 0x55 1x5',),
    ),
    "UllageObjectsUnreadable": Case(
        fires=('ullage_projection_errors_total{kind="TrainingJob"} _x55 1x5',),
        silent=('ullage_projection_errors_total{kind="TrainingJob"} 1x60',),
    ),
    "UllageTasksFail": Case(
        fires=('ullage_node_task_failures_total{task="guard",pod="agent"} _x55 1x5',),
        silent=('ullage_task_failures_total{task="pools",pod="operator"} 1x60',),
    ),
    "UllageMetricsIncomplete": Case(
        fires=('ullage_metrics_failures_total{section="cost"} _x55 1x5',),
        silent=('ullage_metrics_failures_total{section="cost"} 1x60',),
    ),
    "UllageForeignPods": Case(
        fires=("ullage_foreign_pods 1x60",),
        silent=("ullage_foreign_pods 0x50 1x10",),
    ),
    "UllageAgentSilent": Case(
        fires=('ullage_nodes{state="Silent"} 1x60',),
        silent=('ullage_nodes{state="Reporting"} 9x60', 'ullage_nodes{state="Silent"} 0x60'),
    ),
    "UllageDeviceUnhealthy": Case(
        fires=('ullage_device_health{UUID="GPU-0",gpu="0",node="n"} 0x60',),
        silent=('ullage_device_health{UUID="GPU-0",gpu="0",node="n"} 1x60',),
    ),
    "UllageDeviceFaults": Case(
        fires=(
            'ullage_node_device_faults_total{UUID="GPU-0",gpu="0",node="n",xid="31"} _x45 1x15',
        ),
        silent=('ullage_node_device_faults_total{UUID="GPU-0",gpu="0",node="n",xid="31"} 1x60',),
    ),
    "UllageMpsFault": Case(
        fires=('ullage_mps_faults_total{UUID="GPU-0",gpu="0",node="n"} _x55 1x5',),
        silent=('ullage_mps_faults_total{UUID="GPU-0",gpu="0",node="n"} 1x60',),
    ),
    "UllageMpsDown": Case(
        fires=(f'{MPS}{{UUID="GPU-0",gpu="0",node="n",state="Fault"}} 1x60',),
        silent=(
            f'{MPS}{{UUID="GPU-0",gpu="0",node="n",state="Active"}} 1x60',
            f'{MPS}{{UUID="GPU-0",gpu="0",node="n",state="Down"}} 0x60',
        ),
    ),
    "UllageGuardUnreachable": Case(
        fires=('ullage_guard_reachable{node="n"} 0x60',),
        silent=('ullage_guard_reachable{node="n"} 1x60',),
    ),
    "UllageShareUnproven": Case(
        fires=("ullage_slices_unproven 1x60",),
        silent=("ullage_slices_unproven 0x55 2x5",),
    ),
    "UllageSliceLeaked": Case(
        fires=("ullage_slices_undesired 1x60",),
        silent=("ullage_slices_undesired 0x50 1x10",),
    ),
    "UllageStartsRefused": Case(
        fires=('ullage_node_refusals_total{node="n",reason="NoSlice"} _x55 8x5',),
        silent=('ullage_node_refusals_total{node="n",reason="NoSlice"} 0x55 1x5',),
    ),
    "UllageStatusWritesFail": Case(
        fires=('ullage_node_status_failures_total{node="n"} 0+1x60',),
        silent=('ullage_node_status_failures_total{node="n"} 0x50 2x10',),
    ),
    "UllageSLOBurnsFast": Case(
        fires=(
            f'{SLO}{{workload_namespace="team-a",result="kept"}} 0+100x{DAY}',
            # bad for an hour: too short for the slow alert
            f'{SLO}{{workload_namespace="team-a",result="broken"}} 0x660 0+40x60',
        ),
        silent=_windows(kept=1000, broken=5),
        minutes=720,
    ),
    "UllageSLOBurnsSlowly": Case(
        fires=_windows(kept=90, broken=10),
        silent=_windows(kept=97, broken=3),
        minutes=720,
    ),
    "UllageCalibrationDrift": Case(
        fires=('ullage_prediction_coverage_ratio{group="G3"} 0.7x60',),
        silent=('ullage_prediction_coverage_ratio{group="G3"} 0.89x60',),
    ),
    "UllageLearningFails": Case(
        fires=('ullage_model_failing{accelerator="a100"} 1x60',),
        silent=('ullage_model_failing{accelerator="a100"} 0x40 1x20',),
    ),
    "UllageWorkloadStarves": Case(
        fires=('ullage_workload_oldest_seconds{phase="Pending"} 90000x60',),
        silent=('ullage_workload_oldest_seconds{phase="Pending"} 80000x60',),
    ),
    "UllageGangStuck": Case(
        fires=('ullage_workload_oldest_seconds{phase="Starting"} 3600x60',),
        silent=('ullage_workload_oldest_seconds{phase="Restarting"} 3600x60',),
    ),
    "UllageDeadlinesAtRisk": Case(
        fires=('ullage_job_deadlines{kept="no"} 1x60',),
        silent=('ullage_job_deadlines{kept="yes"} 4x60', 'ullage_job_deadlines{kept="no"} 0x60'),
    ),
    "UllageCostAboveOnDemand": Case(
        fires=('ullage_job_savings_ratio{tenant="team-a"} -0.1x120',),
        silent=('ullage_job_savings_ratio{tenant="team-a"} 0.4x120',),
        minutes=120,
    ),
    "UllageWorkLost": Case(
        fires=('ullage_job_lost_work_seconds_total{tenant="team-a"} 0+90x120',),
        silent=('ullage_job_lost_work_seconds_total{tenant="team-a"} 0+30x120',),
        minutes=120,
    ),
    "UllageGpuIdleAllocated": Case(
        fires=(
            'ullage_efficiency_explained_devices{workload_namespace="a",rule="Idle"} 0.3x120',
            'ullage_efficiency_explained_devices{workload_namespace="a",rule="Idle",n="2"} 1x120',
        ),
        silent=(
            'ullage_efficiency_explained_devices{workload_namespace="a",rule="Idle"} 0.3x120',
            'ullage_efficiency_explained_devices{workload_namespace="a",rule="SmallBatch"} 4x120',
        ),
        minutes=60,
    ),
    "UllageIoStarved": Case(
        fires=('ullage_io_starving_containers{node="a",volume="/dev/sdb"} 1x60',),
        silent=('ullage_io_starving_containers{node="a",volume="/dev/sdb"} 0x60',),
        minutes=30,
    ),
    "UllagePoolsFail": Case(
        fires=("ullage_pool_failures_total 0+1x60",),
        silent=("ullage_pool_failures_total 0x50 2x10",),
    ),
}
