# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""TuningJob: a search for the best hyper-parameters; each trial runs as a TrainingJob."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import attrgetter
from typing import Annotated, ClassVar, Final, Literal

from pydantic import ConfigDict, Field

from ullage.api.base import AGE, SET, Column, KindInfo, ObjectName, Resource, condition_column
from ullage.api.gpurequest import Accelerators, GPURequest, TrustDomain
from ullage.api.podtemplate import Runtime, TrainingTemplate
from ullage.api.readers import JsonObject, WireError, quoted
from ullage.api.rules import (
    ALGORITHM_STAYS,
    EPOCHS_ORDER,
    GOAL_STAYS,
    PARAMETER_LOG,
    PARAMETER_NUMBERS,
    PARAMETER_OF_TYPE,
    PARAMETER_ORDER,
    PARAMETER_STEP,
    PARAMETER_WHOLE,
    SEARCH_SPACE_STAYS,
    SUGGESTED_EPOCHS_RISE,
    SUGGESTED_EPOCHS_STAY,
    SUGGESTION_STAYS,
    SUGGESTIONS_FOR_EXTERNAL,
    TRIALS_STAY,
    TRIALS_TIMES_PARAMETERS,
    TUNING_NAME,
    WIDEST_IN_POOL,
    WIDTHS_FOR_WHOLE_DEVICES,
    validations,
)
from ullage.api.spec import (
    SAYS_NOTHING,
    KeyedBy,
    ReadApart,
    Scalar,
    Spec,
    SpecReader,
    Switch,
    Whole,
    listed,
    patterned,
)
from ullage.api.trainingjob import Checkpoint, FailurePolicy
from ullage.api.wire_fields import INT32_MAX
from ullage.api.words import Goal, ParameterType, TuningAlgorithm

MOST_TRIALS: Final = 1_000
MOST_EPOCHS: Final = 999_999
MOST_PARALLEL: Final = 256
LEAST_PERCENT: Final = 8
"""Of a device for a trial: at most 12 trials share one."""
MOST_PARAMETERS: Final = 32
MOST_VALUES: Final = 100
PARAMETER_NAME: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,31}$"
"""The name of an environment variable contains it."""
MOST_DIGITS: Final = 10**15
"""Least whole number of more than 15 digits."""

MOST_REPORTS: Final = 16
"""Epochs at which a suggested trial reports."""
LONGEST_VALUE: Final = 36
"""Characters of a parameter's value."""

Epochs = Annotated[int, Whole(1, MOST_EPOCHS)]


def _number_text(value: object) -> str:
    """A number as it is written; the rules of a parameter say which text is one."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise WireError("expected a whole number, or a number in quotes")
    if isinstance(value, int) and not -MOST_DIGITS < value < MOST_DIGITS:
        raise WireError("has more than 15 digits")
    text = str(value)
    if len(text) > LONGEST_VALUE:
        raise WireError(f"{quoted(text)} must have at most {LONGEST_VALUE} characters")
    return text


Number = Annotated[
    str,
    Scalar(
        read=_number_text,
        write=str,
        schema={
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": LONGEST_VALUE,
        },
    ),
]
"""A whole number, or any number as a string: the API has no fractions."""

_REF: Final = f"The algorithm. {TuningAlgorithm.explained()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm(Spec):
    """Choice of parameters, and of the trials that go on."""

    rules: ClassVar = (EPOCHS_ORDER, ALGORITHM_STAYS)

    ref: Annotated[TuningAlgorithm, Field(description=_REF)]
    seed: Annotated[int, Whole(0, INT32_MAX)] = 0
    """Seed of everything random: the same seed and searchSpace give the same trials."""
    max_epochs: Epochs
    """Epochs of a trial that is never stopped. The program reports one value per epoch."""
    min_epochs: Epochs = 1
    """SyncHalving and ASHA: epochs of the first rung; each later rung has reductionFactor times as
    many."""
    reduction_factor: Annotated[int, Whole(2, 16)] = 3
    """SyncHalving, Hyperband and ASHA: one trial in this many goes on to the next rung."""
    points_per_range: Annotated[int, Whole(1, 1000)] = 3
    """Grid: values of each range without steps, both bounds included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningObjective(Spec):
    """Metric to optimize."""

    metric: Annotated[
        str,
        patterned(r"^[A-Za-z_][-A-Za-z0-9_./]*$", "name of a metric", min_length=1, max_length=63),
    ]
    """Name of the metric that the program reports at the end of each epoch."""
    goal: Goal
    """Whether a higher or a lower value is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter(Spec):
    """A parameter of the search space."""

    rules: ClassVar = (
        PARAMETER_OF_TYPE,
        PARAMETER_NUMBERS,
        PARAMETER_WHOLE,
        PARAMETER_ORDER,
        PARAMETER_LOG,
        PARAMETER_STEP,
    )

    name: Annotated[str, patterned(PARAMETER_NAME, "name of a parameter", max_length=32)]
    """Name of the parameter; the pods of a trial get its value as environment variable
    ULLAGE_PARAMETER_<name>."""
    type: ParameterType
    """`Float` and `Int` are ranges, `Categorical` is a choice."""
    min: Number | None = None
    """Least value, inclusive. Quote numbers that are not whole."""
    max: Number | None = None
    """Greatest value, inclusive. Quote numbers that are not whole."""
    log: Switch = False
    """Values are drawn evenly by order of magnitude, as for learning rates."""
    step: Number | None = None
    """Only min, min + step, min + 2 step and so on are tried, at most 1,000 values; without log."""
    values: (
        Annotated[
            tuple[Annotated[str, Field(min_length=1, max_length=32)], ...],
            listed(MOST_VALUES, least=1, **SET),
        ]
        | None
    ) = None
    """Choices of a Categorical parameter, as strings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialTemplate(Spec):
    """The TrainingJob of a trial: one pod, with the trial's parameters in its environment.

    The fields are those of TrainingJob.spec. A change takes effect for trials that start later.
    """

    template: Annotated[JsonObject, ReadApart(TrainingTemplate)]
    """Template of the pod. Its first container gets ULLAGE_TRIAL (name of the trial),
    ULLAGE_TRIAL_EPOCHS (the epoch to end after), ULLAGE_TRIAL_METRIC and one
    ULLAGE_PARAMETER_<name> for each parameter, and reports with ullage_run.tuning."""
    gpu: GPURequest = field(default_factory=GPURequest)
    """Devices of a trial."""
    accelerators: Accelerators = ()
    """Accepted accelerator types; empty means any."""
    checkpoint: Checkpoint | None = None
    """Trials save their state on request, so they may be preempted."""
    failure_policy: FailurePolicy = field(default_factory=FailurePolicy)
    """When a failed trial restarts; after the last restart it ends without a result."""
    runtime: Runtime = field(default_factory=Runtime)
    """What Ullage adds inside the container."""
    trust_domain: Annotated[TrustDomain, SAYS_NOTHING] = ""
    """Workloads share a device only within one trust domain."""
    profile_ref: Annotated[ObjectName, SAYS_NOTHING] = ""
    """WorkloadProfile in this namespace that states how a trial uses a device."""
    weight: Annotated[int, Whole(1, 1000)] = 1
    """Weight of each trial when the cluster's time is divided."""
    tenant: Annotated[ObjectName, SAYS_NOTHING] = ""
    """Tenant that the time of trials is charged to."""


def _values_by_name(value: object) -> dict[str, object]:
    """Values as a client stated them; a trial with a wrong one is refused alone."""
    if not isinstance(value, dict):
        raise WireError(f"expected an object, got {type(value).__name__}")
    return dict(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSuggestion(Spec):
    """A trial that an external client asks for."""

    rules: ClassVar = (SUGGESTED_EPOCHS_RISE, SUGGESTED_EPOCHS_STAY)

    trial: Annotated[int, Whole(0, MOST_TRIALS - 1)]
    """Unique number of the trial."""
    parameters: Annotated[
        dict[str, object],
        Scalar(
            read=_values_by_name,
            write=dict,
            schema={
                "type": "object",
                "additionalProperties": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": LONGEST_VALUE,
                },
                "maxProperties": MOST_PARAMETERS,
            },
            rule=SUGGESTION_STAYS,
        ),
    ]
    """A value for each parameter of searchSpace, as a string. Immutable."""
    epochs: Annotated[tuple[Epochs, ...], listed(MOST_REPORTS, least=1, **SET)] | None = None
    """Epochs at which the client wants a result, in rising order; absent = maxEpochs. A client
    continues a trial by adding a later epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialPool(Spec):
    """Devices that a search divides among its trials, so that each group of trials ends soon."""

    rules: ClassVar = (WIDEST_IN_POOL,)

    devices: Annotated[int, Whole(1, MOST_PARALLEL)]
    """Number of devices that the trials use together, at most."""
    min_percent: Annotated[int, Whole(LEAST_PERCENT, 100)] = 25
    """Smallest share of a device that a trial may get. Shares are a half, a third and so on of a
    device down to this; the memory of a share, in proportion or as trialTemplate.gpu.memory says,
    must suffice."""
    max_devices: Annotated[int, Whole(1, 16)] = 1
    """Most devices that a trial may get, all on one node. Above 1 the program must use all devices
    that it sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJobSpec(Spec):
    """Search space, objective and algorithm."""

    rules: ClassVar = (
        TRIALS_TIMES_PARAMETERS,
        SUGGESTIONS_FOR_EXTERNAL,
        WIDTHS_FOR_WHOLE_DEVICES,
    )

    algorithm: Algorithm
    """How parameters are chosen, and which trials go on. Immutable."""
    objective: Annotated[TuningObjective, Field(json_schema_extra=validations(GOAL_STAYS))]
    """Metric to optimize. Immutable."""
    search_space: Annotated[
        tuple[Parameter, ...],
        listed(MOST_PARAMETERS, least=1, **validations(SEARCH_SPACE_STAYS)),
        KeyedBy(fields=("name",), key=attrgetter("name")),
    ]
    """Parameters of the search and their values. Immutable."""
    trials: Annotated[int, Whole(1, MOST_TRIALS), Field(json_schema_extra=validations(TRIALS_STAY))]
    """Number of trials. A grid with fewer points has one trial per point; for External it is an
    upper bound. Immutable."""
    parallelism: Annotated[int, Whole(1, MOST_PARALLEL)] = 8
    """Maximum number of trials that run or wait for devices at once."""
    resources: TrialPool | None = None
    """Devices that the operator divides among the trials: many trials get a share each, few get
    more. Absent: every trial gets what trialTemplate.gpu says."""
    max_failed_trials: Annotated[int, Whole(0, MOST_TRIALS)] = 10
    """The TuningJob fails when more trials than this have failed, so that a broken program does not
    fail in every trial."""
    suggestions: (
        Annotated[
            tuple[TrialSuggestion, ...],
            listed(MOST_TRIALS),
            KeyedBy(fields=("trial",), key=attrgetter("trial")),
        ]
        | None
    ) = None
    """With algorithm External: trials that an external client asks for. The client adds to the list
    and reads `status.results`. A trial that it removes is stopped, and its results are removed,
    too."""
    suggestions_ended: Switch = False
    """With algorithm External: no more suggestions come; the search ends when the suggested trials
    have ended."""
    trial_template: TrialTemplate
    """The TrainingJob of a trial."""


read_tuning_spec: Final = SpecReader(TuningJobSpec)


class TuningJob(Resource):
    """A search for the best hyper-parameters: trials, compared by a metric at given epochs.

    Each trial runs as a TrainingJob that the TuningJob owns, so placement, sharing and quota are
    the same as for any other. Results are in `status.results`, the best one in
    `status.bestTrial`.
    """

    model_config = ConfigDict(json_schema_extra=validations(TUNING_NAME))
    info: ClassVar[KindInfo] = KindInfo(
        plural="tuningjobs",
        singular="tuningjob",
        short_name="tune",
        namespaced=True,
        columns=(
            Column(name="Phase", path=".status.phase", description="Where the search is."),
            Column(
                name="Algorithm", path=".spec.algorithm.ref", description="Algorithm of the search."
            ),
            Column(
                name="Trials", path=".spec.trials", type="integer", description="Trials in all."
            ),
            Column(
                name="Running",
                path=".status.trials.running",
                type="integer",
                description="Trials that run or wait for devices.",
            ),
            Column(
                name="Ended",
                path=".status.trials.ended",
                type="integer",
                description="Trials that have ended for good.",
            ),
            Column(name="Best", path=".status.bestTrial.value", description="Best value so far."),
            AGE,
            Column(
                name="Best-Trial",
                path=".status.bestTrial.name",
                description="Trial of the best value.",
                wide=True,
            ),
            Column(
                name="Failed",
                path=".status.trials.failed",
                type="integer",
                description="Trials that failed.",
                wide=True,
            ),
            condition_column("Complete", "Complete", "Whether the search has ended.", wide=True),
        ),
    )

    kind: Literal["TuningJob"] = "TuningJob"
    """Kind of the object."""
    spec: TuningJobSpec
    """What to search, and how."""
