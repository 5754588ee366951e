# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Records of planners: layers, links, plans, refusals. Bytes, seconds, whole devices."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MOST_LAYERS: Final = 512
"""Rows of a profile; the dynamic programme takes the square of them per stage."""
MOST_DEVICES: Final = 65_536
MOST_MICROBATCHES: Final = 1_000_000
NAME: Final = re.compile(r"[A-Za-z0-9_.]{1,253}")
"""Names of layers become arguments of programs."""


class TrainingFramework(StrEnum):
    """Programs that execute plans."""

    TORCHTITAN = "Torchtitan"
    MEGATRON = "Megatron"
    TORCH_PIPELINING = "TorchPipelining"
    DEEPSPEED = "DeepSpeed"
    FSDP = "FSDP"
    OTHER = "Other"


class PipelineSchedule(StrEnum):
    """Order of forward and backward passes of a step."""

    GPIPE = "GPipe"
    """All forward passes, then all backward passes."""
    ONE_FORWARD_ONE_BACKWARD = "1F1B"
    """In turn once the pipeline is full; PipeDream-Flush."""
    INTERLEAVED = "Interleaved1F1B"
    """The same with several chunks of layers on a device."""
    TWO_BUFFERED_WEIGHTS = "2BW"
    """Never flushed, two versions of the weights; no maintained framework executes it."""


class PlanConstraint(StrEnum):
    """A limit that no plan can keep; the units of need and have go with it."""

    DEVICE_MEMORY = "DeviceMemory"
    """Bytes of a device."""
    STAGES = "Stages"
    """Layers that a pipeline of so many stages has to have."""
    MICROBATCHES = "Microbatches"
    """Microbatches of a step that divide among the pipelines and fill them."""
    DEGREES = "Degrees"
    """Devices that the degrees of the model divide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCost:
    """One layer of a chain, for one microbatch on one device.

    Attributes:
        name: Unique in its chain.
        forward_s: Forward pass.
        backward_s: Backward pass.
        activation_bytes: Output, sent to the next stage.
        parameter_bytes: Weights, as they are all-reduced and kept.
        saved_bytes: Kept for the backward pass; ``None`` = its output.

    Raises:
        ValueError: the name cannot be an argument, or a figure is negative or not a number.
    """

    name: str
    forward_s: float
    backward_s: float
    activation_bytes: float
    parameter_bytes: float
    saved_bytes: float | None = None

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ValueError(
                f"names of layers have letters, digits, _ and . only, not {self.name[:80]!r}"
            )
        for what in ("forward_s", "backward_s", "activation_bytes", "parameter_bytes", "kept"):
            not_negative(getattr(self, what), f"{what} of layer {self.name}")

    @property
    def kept(self) -> float:
        """Bytes kept for the backward pass."""
        return self.activation_bytes if self.saved_bytes is None else self.saved_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpeed:
    """A link between two devices, in one direction.

    Raises:
        ValueError: no bytes pass, or a figure is not a number.
    """

    bytes_per_s: float
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        positive(self.bytes_per_s, "bytes per second of a link")
        not_negative(self.latency_s, "latency of a link")

    def send_s(self, size: float) -> float:
        """Seconds to send so many bytes."""
        return self.latency_s + size / self.bytes_per_s if size else 0.0

    def all_reduce_s(self, size: float, devices: int) -> float:
        """A ring's all-reduce of so many bytes (derived: 2 (n - 1) / n of them pass each link)."""
        if devices < 2 or not size:
            return 0.0
        steps = 2 * (devices - 1)
        return steps * (self.latency_s + size / devices / self.bytes_per_s)

    def gather_s(self, size: float, devices: int) -> float:
        """A ring's all-gather or reduce-scatter: half of an all-reduce."""
        return self.all_reduce_s(size, devices) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLinks:
    """Links of a homogeneous group of devices, numbered node by node.

    Attributes:
        device: Between two devices of a node.
        node: Between two devices of different nodes.
        devices: In a node.
    """

    device: LinkSpeed
    node: LinkSpeed
    devices: int

    def __post_init__(self) -> None:
        whole(self.devices, "devices of a node", most=MOST_DEVICES)

    def between(self, first: int, last: int) -> LinkSpeed:
        """The slowest link among the devices from ``first`` to ``last``."""
        return self.device if first // self.devices == last // self.devices else self.node


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """A stage of a pipeline.

    Attributes:
        first: Index of its first layer.
        last: Index of its last layer.
        replicas: Devices that hold a copy of it.
        in_flight: Microbatches whose activations it keeps at most.
        seconds: Forward and backward of a microbatch, transfers and its part of the all-reduce.
        memory_bytes: On each of its devices.
    """

    first: int
    last: int
    replicas: int
    in_flight: int
    seconds: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """A chain of layers over devices.

    Attributes:
        stages: In order of the layers.
        microbatches: Of each pipeline in a step; of all where stages differ in replicas.
        schedule: Order of the microbatches.
        step_s: Predicted step.
        bubble: Part of the devices' time in which they wait for a stage.
        gap: Upper bound of what another split of as many stages could save, a part of the step.
        executable_by: Frameworks that can run it; empty = advice.
        why_not: Why no framework can, empty otherwise.
    """

    stages: tuple[StagePlan, ...]
    microbatches: int
    schedule: PipelineSchedule
    step_s: float
    bubble: float
    executable_by: tuple[TrainingFramework, ...]
    why_not: str = ""
    gap: float = 0.0

    @property
    def devices(self) -> int:
        """Devices that it takes."""
        return sum(stage.replicas for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRefusal:
    """No plan keeps a constraint; figures are those of the plan that comes nearest.

    Attributes:
        constraint: The constraint.
        stage: Index of the stage that breaks it; ``None`` = the plan as a whole.
        need: What is needed, in the constraint's unit.
        have: What there is.
    """

    constraint: PlanConstraint
    stage: int | None
    need: float
    have: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComparison:
    """A plan, the next best with other stages, and what keeps it from being faster.

    Attributes:
        chosen: The plan.
        runner_up: The best of another number of stages, if there is any.
        single_device_s: Step on one device, if it fits there.
        data_parallel_s: Step with all layers on each device, if they fit.
        binding: What excluded the fastest plan that was excluded; ``None`` = nothing did.
    """

    chosen: PipelinePlan
    runner_up: PipelinePlan | None
    single_device_s: float | None
    data_parallel_s: float | None
    binding: PlanRefusal | None


def chain_of(layers: Sequence[LayerCost]) -> tuple[LayerCost, ...]:
    """A chain whose layers can be told apart.

    Raises:
        ValueError: there are none or too many, or two have one name.
    """
    if not 0 < len(layers) <= MOST_LAYERS:
        raise ValueError(f"a profile has 1 to {MOST_LAYERS} layers, not {len(layers)}")
    seen: set[str] = set()
    for layer in layers:
        if layer.name in seen:
            raise ValueError(f"two layers are named {layer.name}")
        seen.add(layer.name)
    return tuple(layers)


def whole(number: int, what: str, *, most: int, least: int = 1) -> int:
    """A whole number in range.

    Args:
        number: The number.
        what: Names it in the error.
        most: The largest.
        least: The smallest.

    Raises:
        ValueError: it is none.
    """
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ValueError(f"{what} must be a whole number from {least} to {most}, not {number!r}")
    return number


def positive(number: float, what: str) -> float:
    """A finite number above 0.

    Raises:
        ValueError: it is none.
    """
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"{what} must be a number above 0, not {number!r}")
    return number


def not_negative(number: float, what: str) -> float:
    """A finite number of at least 0.

    Raises:
        ValueError: it is none.
    """
    if not (math.isfinite(number) and number >= 0):
        raise ValueError(f"{what} must be a number of at least 0, not {number!r}")
    return number
