# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ParameterType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN_TYPE: _ClassVar[ParameterType]
    DOUBLE: _ClassVar[ParameterType]
    INT: _ClassVar[ParameterType]
    DISCRETE: _ClassVar[ParameterType]
    CATEGORICAL: _ClassVar[ParameterType]

class Distribution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISTRIBUTION_UNSPECIFIED: _ClassVar[Distribution]
    UNIFORM: _ClassVar[Distribution]
    LOG_UNIFORM: _ClassVar[Distribution]

class ObjectiveType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    UNKNOWN: _ClassVar[ObjectiveType]
    MINIMIZE: _ClassVar[ObjectiveType]
    MAXIMIZE: _ClassVar[ObjectiveType]
UNKNOWN_TYPE: ParameterType
DOUBLE: ParameterType
INT: ParameterType
DISCRETE: ParameterType
CATEGORICAL: ParameterType
DISTRIBUTION_UNSPECIFIED: Distribution
UNIFORM: Distribution
LOG_UNIFORM: Distribution
UNKNOWN: ObjectiveType
MINIMIZE: ObjectiveType
MAXIMIZE: ObjectiveType

class Experiment(_message.Message):
    __slots__ = ("name", "spec")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: ExperimentSpec
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[ExperimentSpec, _Mapping]] = ...) -> None: ...

class ExperimentSpec(_message.Message):
    __slots__ = ("parameter_specs", "objective", "algorithm", "parallel_trial_count", "max_trial_count")
    class ParameterSpecs(_message.Message):
        __slots__ = ("parameters",)
        PARAMETERS_FIELD_NUMBER: _ClassVar[int]
        parameters: _containers.RepeatedCompositeFieldContainer[ParameterSpec]
        def __init__(self, parameters: _Optional[_Iterable[_Union[ParameterSpec, _Mapping]]] = ...) -> None: ...
    PARAMETER_SPECS_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    PARALLEL_TRIAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    MAX_TRIAL_COUNT_FIELD_NUMBER: _ClassVar[int]
    parameter_specs: ExperimentSpec.ParameterSpecs
    objective: ObjectiveSpec
    algorithm: AlgorithmSpec
    parallel_trial_count: int
    max_trial_count: int
    def __init__(self, parameter_specs: _Optional[_Union[ExperimentSpec.ParameterSpecs, _Mapping]] = ..., objective: _Optional[_Union[ObjectiveSpec, _Mapping]] = ..., algorithm: _Optional[_Union[AlgorithmSpec, _Mapping]] = ..., parallel_trial_count: _Optional[int] = ..., max_trial_count: _Optional[int] = ...) -> None: ...

class ParameterSpec(_message.Message):
    __slots__ = ("name", "parameter_type", "feasible_space")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_TYPE_FIELD_NUMBER: _ClassVar[int]
    FEASIBLE_SPACE_FIELD_NUMBER: _ClassVar[int]
    name: str
    parameter_type: ParameterType
    feasible_space: FeasibleSpace
    def __init__(self, name: _Optional[str] = ..., parameter_type: _Optional[_Union[ParameterType, str]] = ..., feasible_space: _Optional[_Union[FeasibleSpace, _Mapping]] = ...) -> None: ...

class FeasibleSpace(_message.Message):
    __slots__ = ("max", "min", "list", "step", "distribution")
    MAX_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    LIST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DISTRIBUTION_FIELD_NUMBER: _ClassVar[int]
    max: str
    min: str
    list: _containers.RepeatedScalarFieldContainer[str]
    step: str
    distribution: Distribution
    def __init__(self, max: _Optional[str] = ..., min: _Optional[str] = ..., list: _Optional[_Iterable[str]] = ..., step: _Optional[str] = ..., distribution: _Optional[_Union[Distribution, str]] = ...) -> None: ...

class ObjectiveSpec(_message.Message):
    __slots__ = ("type", "objective_metric_name")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_METRIC_NAME_FIELD_NUMBER: _ClassVar[int]
    type: ObjectiveType
    objective_metric_name: str
    def __init__(self, type: _Optional[_Union[ObjectiveType, str]] = ..., objective_metric_name: _Optional[str] = ...) -> None: ...

class AlgorithmSpec(_message.Message):
    __slots__ = ("algorithm_name", "algorithm_settings")
    ALGORITHM_NAME_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    algorithm_name: str
    algorithm_settings: _containers.RepeatedCompositeFieldContainer[AlgorithmSetting]
    def __init__(self, algorithm_name: _Optional[str] = ..., algorithm_settings: _Optional[_Iterable[_Union[AlgorithmSetting, _Mapping]]] = ...) -> None: ...

class AlgorithmSetting(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Trial(_message.Message):
    __slots__ = ("name", "spec", "status")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: TrialSpec
    status: TrialStatus
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[TrialSpec, _Mapping]] = ..., status: _Optional[_Union[TrialStatus, _Mapping]] = ...) -> None: ...

class TrialSpec(_message.Message):
    __slots__ = ("objective", "parameter_assignments")
    class ParameterAssignments(_message.Message):
        __slots__ = ("assignments",)
        ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
        assignments: _containers.RepeatedCompositeFieldContainer[ParameterAssignment]
        def __init__(self, assignments: _Optional[_Iterable[_Union[ParameterAssignment, _Mapping]]] = ...) -> None: ...
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    objective: ObjectiveSpec
    parameter_assignments: TrialSpec.ParameterAssignments
    def __init__(self, objective: _Optional[_Union[ObjectiveSpec, _Mapping]] = ..., parameter_assignments: _Optional[_Union[TrialSpec.ParameterAssignments, _Mapping]] = ...) -> None: ...

class ParameterAssignment(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class TrialStatus(_message.Message):
    __slots__ = ("condition", "observation")
    class TrialConditionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CREATED: _ClassVar[TrialStatus.TrialConditionType]
        RUNNING: _ClassVar[TrialStatus.TrialConditionType]
        SUCCEEDED: _ClassVar[TrialStatus.TrialConditionType]
        KILLED: _ClassVar[TrialStatus.TrialConditionType]
        FAILED: _ClassVar[TrialStatus.TrialConditionType]
    CREATED: TrialStatus.TrialConditionType
    RUNNING: TrialStatus.TrialConditionType
    SUCCEEDED: TrialStatus.TrialConditionType
    KILLED: TrialStatus.TrialConditionType
    FAILED: TrialStatus.TrialConditionType
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    OBSERVATION_FIELD_NUMBER: _ClassVar[int]
    condition: TrialStatus.TrialConditionType
    observation: Observation
    def __init__(self, condition: _Optional[_Union[TrialStatus.TrialConditionType, str]] = ..., observation: _Optional[_Union[Observation, _Mapping]] = ...) -> None: ...

class Observation(_message.Message):
    __slots__ = ("metrics",)
    METRICS_FIELD_NUMBER: _ClassVar[int]
    metrics: _containers.RepeatedCompositeFieldContainer[Metric]
    def __init__(self, metrics: _Optional[_Iterable[_Union[Metric, _Mapping]]] = ...) -> None: ...

class Metric(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class GetSuggestionsRequest(_message.Message):
    __slots__ = ("experiment", "trials", "current_request_number", "total_request_number")
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    TRIALS_FIELD_NUMBER: _ClassVar[int]
    CURRENT_REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TOTAL_REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    trials: _containers.RepeatedCompositeFieldContainer[Trial]
    current_request_number: int
    total_request_number: int
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ..., trials: _Optional[_Iterable[_Union[Trial, _Mapping]]] = ..., current_request_number: _Optional[int] = ..., total_request_number: _Optional[int] = ...) -> None: ...

class GetSuggestionsReply(_message.Message):
    __slots__ = ("parameter_assignments", "algorithm")
    class ParameterAssignments(_message.Message):
        __slots__ = ("assignments", "trial_name", "labels")
        class LabelsEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
        TRIAL_NAME_FIELD_NUMBER: _ClassVar[int]
        LABELS_FIELD_NUMBER: _ClassVar[int]
        assignments: _containers.RepeatedCompositeFieldContainer[ParameterAssignment]
        trial_name: str
        labels: _containers.ScalarMap[str, str]
        def __init__(self, assignments: _Optional[_Iterable[_Union[ParameterAssignment, _Mapping]]] = ..., trial_name: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...
    PARAMETER_ASSIGNMENTS_FIELD_NUMBER: _ClassVar[int]
    ALGORITHM_FIELD_NUMBER: _ClassVar[int]
    parameter_assignments: _containers.RepeatedCompositeFieldContainer[GetSuggestionsReply.ParameterAssignments]
    algorithm: AlgorithmSpec
    def __init__(self, parameter_assignments: _Optional[_Iterable[_Union[GetSuggestionsReply.ParameterAssignments, _Mapping]]] = ..., algorithm: _Optional[_Union[AlgorithmSpec, _Mapping]] = ...) -> None: ...

class ValidateAlgorithmSettingsRequest(_message.Message):
    __slots__ = ("experiment",)
    EXPERIMENT_FIELD_NUMBER: _ClassVar[int]
    experiment: Experiment
    def __init__(self, experiment: _Optional[_Union[Experiment, _Mapping]] = ...) -> None: ...

class ValidateAlgorithmSettingsReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
