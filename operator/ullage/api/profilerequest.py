# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""ProfileRequest: a trace of the same few steps in the ranks of a running job."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from ullage.api.base import AGE, Column, KindInfo, ObjectName, Resource
from ullage.api.captures import CAPTURE_STEPS_MOST
from ullage.api.rules import LABELS_NAME_PODS, REQUEST_STAYS, TRACES_ONE_JOB
from ullage.api.spec import Keeps, Spec, SpecReader, Switch, Whole, patterned, text_map
from ullage.api.times import DAY_S, REQUEST_KEPT_MOST_S
from ullage.api.words import TracedKind

MOST_LISTED: Final = 16
"""Ranks that a request names one by one."""
ALL, SAMPLE = "All", "Sample"
_RANKS: Final = patterned(
    rf"^(All|Sample|[0-9]{{1,5}}(,[0-9]{{1,5}}){{0,{MOST_LISTED - 1}}})$",
    "choice of ranks: All, Sample, or numbers such as 0,3",
    max_length=96,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedJob(Spec):
    """A job in the namespace of the request."""

    kind: TracedKind
    """Kind of the job. Pods of a kind that is not Ullage's are found by the label that its
    controller sets on them, and must share devices through a label of Ullage."""
    name: ObjectName
    """Name of the job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodLabels(Spec):
    """Pods in the namespace of the request, by their labels."""

    match_labels: Annotated[dict[str, str], text_map(16, 63), Keeps(LABELS_NAME_PODS)]
    """Labels that all of the pods have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequestSpec(Spec):
    """The job or the pods to trace, and options of the trace."""

    rules: ClassVar = (TRACES_ONE_JOB, REQUEST_STAYS)

    job_ref: TracedJob | None = None
    """The job whose pods are traced."""
    pod_selector: PodLabels | None = None
    """Pods that share devices, by their labels, instead of a job."""
    ranks: Annotated[str, _RANKS] = SAMPLE
    """Ranks to trace: `Sample` for up to four pods spread over the ranks, `All` for up to 64 pods,
    or numbers of ranks such as `0,3`."""
    steps: Annotated[int, Whole(1, CAPTURE_STEPS_MOST)] = 5
    """Number of consecutive steps to trace, the same ones in every rank."""
    stacks: Switch = False
    """Record Python stacks: traces become about twice as large, and traced steps slower."""
    shapes: Switch = False
    """Record the shapes of inputs."""
    ttl_seconds_after_finished: Annotated[int, Whole(0, REQUEST_KEPT_MOST_S)] = DAY_S
    """Time after the end of the trace at which the request is deleted, its result included."""


read_profile_request_spec: Final = SpecReader(ProfileRequestSpec)


class ProfileRequest(Resource):
    """A trace of the same few steps in the ranks of a running job, with its analysis.

    The job is neither restarted nor changed. Traces stay in the pods; the status has the time by
    kind of work, and the rank that the others wait for. The spec is immutable: create another
    request to trace again.
    """

    info: ClassVar[KindInfo] = KindInfo(
        plural="profilerequests",
        singular="profilerequest",
        short_name="preq",
        namespaced=True,
        columns=(
            Column(name="Job", path=".spec.jobRef.name", description="The job that is traced."),
            Column(name="Phase", path=".status.phase", description="Phase of the trace."),
            Column(
                name="Reason",
                path=".status.conditions[0].reason",
                description="Reason for the phase, in one word.",
            ),
            Column(
                name="First-Step",
                path=".status.window.firstStep",
                type="integer",
                description="First step that was traced.",
            ),
            Column(
                name="Steps", path=".spec.steps", type="integer", description="Number of steps."
            ),
            AGE,
            Column(
                name="Ranks", path=".spec.ranks", description="Ranks that are traced.", wide=True
            ),
            Column(
                name="Message",
                path=".status.message",
                description="State of the request, in one sentence.",
                wide=True,
            ),
        ),
    )

    kind: Literal["ProfileRequest"] = "ProfileRequest"
    """Kind of the object."""
    spec: ProfileRequestSpec
    """The job or the pods to trace, and options of the trace. Immutable."""
