# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""``ullage plan``: spread a model over devices, and print the arguments of its program.

Reads files and, with ``--accelerator``, DeviceProfiles of the cluster; applies nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

from ullage.api.quantity import MIB, own_bytes
from ullage.api.readers import WireError
from ullage.cli import plan_tables, printing
from ullage.cli.forms import CostOutput, PlanProgram
from ullage.cli.plan_layers import MOST_BYTES, read_layers
from ullage.cli.plan_options import ChainOptions, DeviceOptions, ModelOptions, ProgramOptions
from ullage.cli.simulate_options import of
from ullage.engines.parallelism.chain import ChainProblem, chain_plan
from ullage.engines.parallelism.delivery import (
    DeliveryRefusal,
    ProgramArguments,
    chain_arguments,
    transformer_arguments,
)
from ullage.engines.parallelism.dimensions import TransformerShape
from ullage.engines.parallelism.records import (
    DeviceLinks,
    LinkSpeed,
    PlanRefusal,
    TrainingFramework,
)
from ullage.engines.parallelism.step_time import DeviceSpeed
from ullage.engines.parallelism.transformer import TransformerProblem, transformer_plan

if TYPE_CHECKING:
    from ullage.cluster.records.profile import DeviceProfileRecord

GIGA: Final = 1e9
TERA: Final = 1e12
MICRO: Final = 1e-6
HALF_FORMATS: Final = ("BF16", "FP16")
"""Number formats of mixed precision, the first that a DeviceProfile has."""


class PlanError(Exception):
    """The options are no question; the text has the correction."""


def answered(context: typer.Context, given: Mapping[str, object], output: CostOutput) -> None:
    """Run the command of its options; a refusal ends it with exit status 1.

    Args:
        context: Of the command.
        given: Options by the names of their fields.
        output: Form of the answer.
    """
    model, chain = of(ModelOptions, given), of(ChainOptions, given)
    devices, program = of(DeviceOptions, given), of(ProgramOptions, given)
    known = _device_profile(context, devices.accelerator) if devices.accelerator else None
    answer: plan_tables.TransformerAnswer | plan_tables.ChainAnswer | PlanRefusal
    try:
        if chain.profile:
            answer = _of_chain(model, chain, devices, program, known)
        else:
            answer = _of_transformer(model, chain, devices, program, known)
        if isinstance(answer, PlanRefusal):
            if output is CostOutput.JSON:
                typer.echo(_text({"refused": plan_tables.refusal_body(answer)}), nl=False)
            printing.fail(f"no plan: {plan_tables.refusal_line(answer)}")
        if program.files and isinstance(answer.delivery, ProgramArguments):
            _write(Path(program.files), answer.delivery)
    except (PlanError, ValueError, WireError) as error:
        printing.fail(str(error))
    except OSError as error:
        printing.fail(f"{error.filename or program.files}: {error.strerror or error}")
    if output is CostOutput.JSON:
        typer.echo(_text(plan_tables.body(answer)), nl=False)
        return
    printing.console.print(plan_tables.table(answer))
    for line in plan_tables.delivery_lines(answer.delivery):
        printing.console.print(line, markup=False, soft_wrap=True)


def _of_transformer(
    model: ModelOptions,
    chain: ChainOptions,
    devices: DeviceOptions,
    program: ProgramOptions,
    known: DeviceProfileRecord | None,
) -> plan_tables.TransformerAnswer | PlanRefusal:
    missing = _missing_dimensions(model)
    missing += ["--global-batch"] if program.global_batch is None else []
    missing += _missing(devices, known, speed=True)
    if chain.microbatches is not None:
        raise PlanError("--microbatches goes with --profile; a transformer has --global-batch")
    if missing:
        raise PlanError(_named(missing))
    shape = _shape(model)
    framework = _framework(program)
    problem = TransformerProblem(
        shape=shape,
        devices=devices.devices or 0,
        batch=program.global_batch or 0,
        speed=_speed(devices, known),
        links=_links(devices),
        memory_bytes=_memory_bytes(devices, known),
        framework=None if framework is TrainingFramework.OTHER else framework,
    )
    choice = transformer_plan(problem)
    if isinstance(choice, PlanRefusal):
        return choice
    return plan_tables.TransformerAnswer(
        problem=problem,
        choice=choice,
        measured=devices.efficiency is not None,
        delivery=transformer_arguments(framework, shape, choice.chosen),
    )


def _of_chain(
    model: ModelOptions,
    chain: ChainOptions,
    devices: DeviceOptions,
    program: ProgramOptions,
    known: DeviceProfileRecord | None,
) -> plan_tables.ChainAnswer | PlanRefusal:
    if model != ModelOptions() or program.global_batch is not None:
        raise PlanError(
            "--profile has the layers and --microbatches the batch; leave out the model"
        )
    missing = _missing(devices, known, speed=False)
    if chain.microbatches is None:
        missing.insert(0, "--microbatches")
    if missing or chain.microbatches is None:
        raise PlanError(_named(missing))
    layers = read_layers(_file(chain.profile))
    problem = ChainProblem(
        layers=layers,
        devices=devices.devices or 0,
        links=_links(devices),
        memory_bytes=_memory_bytes(devices, known),
        microbatches=chain.microbatches,
        state_factor=chain.state_factor,
    )
    comparison = chain_plan(problem)
    if isinstance(comparison, PlanRefusal):
        return comparison
    delivery: ProgramArguments | DeliveryRefusal = chain_arguments(
        _framework(program), layers, comparison.chosen, microbatch=chain.microbatch
    )
    return plan_tables.ChainAnswer(problem=problem, comparison=comparison, delivery=delivery)


def _framework(program: ProgramOptions) -> TrainingFramework:
    return TrainingFramework(PlanProgram(program.framework).value)


def _missing(
    devices: DeviceOptions, known: DeviceProfileRecord | None, *, speed: bool
) -> list[str]:
    """Options that neither the command line nor the DeviceProfile states."""
    missing = []
    if devices.devices is None:
        missing.append("--devices")
    if devices.devices_per_node is None:
        missing.append("--devices-per-node")
    if not devices.memory and not (known is not None and known.memory_mib):
        missing.append("--memory")
    if speed and devices.peak_tflops is None and not _peak(known):
        missing.append("--peak-tflops")
    bandwidth = known is not None and known.memory_bytes_per_s
    if speed and devices.memory_bandwidth is None and not bandwidth:
        missing.append("--memory-bandwidth")
    each, number = devices.devices_per_node, devices.devices
    if devices.device_link is None and each != 1:
        missing.append("--device-link")
    if devices.node_link is None and (each is None or number is None or number > each):
        missing.append("--node-link")
    return missing


def _named(missing: list[str]) -> str:
    return f"no plan without {', '.join(missing)}; none of these figures has a default"


def _missing_dimensions(model: ModelOptions) -> list[str]:
    needed = ("layers", "hidden", "heads", "ffn", "vocabulary", "sequence")
    return [f"--{name}" for name in needed if getattr(model, name) is None]


def _shape(model: ModelOptions) -> TransformerShape:
    """The model of options that are all there.

    Raises:
        ValueError: a number is out of range.
    """
    return TransformerShape(
        layers=model.layers or 0,
        hidden=model.hidden or 0,
        heads=model.heads or 0,
        kv_heads=(model.heads or 0) if model.kv_heads is None else model.kv_heads,
        ffn=model.ffn or 0,
        vocabulary=model.vocabulary or 0,
        sequence=model.sequence or 0,
        gated_ffn=model.gated_ffn,
        experts=model.experts,
        active_experts=model.active_experts,
        biases=model.biases,
        learned_positions=model.learned_positions,
        tied=model.tied,
        stored_attention=model.stored_attention,
    )


def _speed(devices: DeviceOptions, known: DeviceProfileRecord | None) -> DeviceSpeed:
    """Speed of a device; options have precedence over the DeviceProfile."""
    peak, bandwidth = _peak(known), 0.0 if known is None else known.memory_bytes_per_s
    if devices.peak_tflops is not None:
        peak = devices.peak_tflops * TERA
    if devices.memory_bandwidth is not None:
        bandwidth = devices.memory_bandwidth * GIGA
    if devices.efficiency is None:
        return DeviceSpeed(peak_flops=peak, bytes_per_s=bandwidth)
    return DeviceSpeed(peak_flops=peak, bytes_per_s=bandwidth, efficiency=devices.efficiency)


def _peak(known: DeviceProfileRecord | None) -> float:
    rates = dict(known.peak_flops) if known is not None else {}
    return next((rates[form] for form in HALF_FORMATS if rates.get(form)), 0.0)


def _links(devices: DeviceOptions) -> DeviceLinks:
    """Links; of a kind that is not needed, those of the other."""
    within, between = devices.device_link, devices.node_link
    within = between if within is None else within
    between = within if between is None else between
    return DeviceLinks(
        device=_link(within, devices.device_latency),
        node=_link(between, devices.node_latency),
        devices=devices.devices_per_node or 0,
    )


def _link(gigabytes: float | None, latency: float) -> LinkSpeed:
    return LinkSpeed(bytes_per_s=(gigabytes or 0.0) * GIGA, latency_s=latency * MICRO)


def _memory_bytes(devices: DeviceOptions, known: DeviceProfileRecord | None) -> float:
    """Memory of a device for the program, without the context where the DeviceProfile has one."""
    if devices.memory or known is None:
        amount, divisor = own_bytes(devices.memory)
        return amount / divisor
    return float(known.memory_mib - known.context_overhead_mib) * MIB


def _device_profile(context: typer.Context, name: str) -> DeviceProfileRecord:
    from ullage.cli import access
    from ullage.cluster.values.streams import DEVICE_PROFILES

    profiles = access.look_at(context, (DEVICE_PROFILES,)).device_profiles
    if (known := profiles.get(name)) is None:
        have = ", ".join(sorted(profiles)) or "none"
        access.fail(f"no DeviceProfile {name} in this cluster (it has: {have})")
    return known


def _file(path: str) -> str:
    try:
        if path == "-":
            data = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror or error}") from error
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PlanError(f"{path} is no UTF-8 text") from error


def _write(folder: Path, program: ProgramArguments) -> None:
    for file in program.files:
        (folder / file.name).write_text(file.text, encoding="utf-8")


def _text(body: Mapping[str, object]) -> str:
    return json.dumps(body, indent=2, allow_nan=False) + "\n"
