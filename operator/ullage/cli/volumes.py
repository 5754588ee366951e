# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Unfair use of the volumes of a job's nodes, from the reports of their agents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.text import Text

from ullage import ports
from ullage.api.dataio import MAX_STARVATIONS, LoaderState, ObservedStarvation
from ullage.api.readers import WireError, objects, section
from ullage.api.slices import ObservedSlice
from ullage.cli.tables import BAD
from ullage.cluster.records.pod import PodRecord


def loaders(nodes: Mapping[str, ports.JsonObject], pods: Iterable[PodRecord]) -> Iterator[Text]:
    """Lines on the data loaders of pods, where their workers are tuned.

    Args:
        nodes: GPUNodes by name.
        pods: Pods of one workload.
    """
    ours = {pod.uid: pod.name for pod in pods}
    for body in nodes.values():
        for raw in objects(section(body, "status"), "slices"):
            try:
                seen = ObservedSlice.from_wire(raw)
            except WireError:  # of another version; the operator reports it
                continue
            if seen.loader is not None and seen.key.pod_uid in ours:
                trying = ", still trying" if seen.loader.state is LoaderState.TUNING else ""
                yield Text(f"{ours[seen.key.pod_uid]}: {seen.loader.text()}{trying}")


def unfair_use(nodes: Mapping[str, ports.JsonObject], pods: Iterable[PodRecord]) -> Iterator[Text]:
    """Lines on pods that starve on a volume, and on those that take too much of one.

    Args:
        nodes: GPUNodes by name.
        pods: Pods of one workload.
    """
    ours = {pod.uid: pod.name for pod in pods}
    for node, body in nodes.items():
        for raw in objects(section(body, "status"), "starvations")[:MAX_STARVATIONS]:
            try:
                report = ObservedStarvation.from_wire(raw)
            except WireError:  # of another version; the operator reports it
                continue
            if report.pod_uid in ours:
                yield Text(f"{report.pod} waits for data: {report.text(node)}", BAD)
            elif report.hog_uid in ours:
                yield Text(
                    f"{report.hog} takes {report.hog_percent} % of {node}:{report.volume}, and "
                    f"{report.namespace}/{report.pod} starves there",
                    BAD,
                )
