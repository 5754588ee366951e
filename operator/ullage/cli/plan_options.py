# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The options of ``ullage plan``, in groups. No figure of a device has a default."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from ullage.cli.forms import PlanProgram


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Dimensions of a transformer."""

    layers: Annotated[int | None, typer.Option(help="Transformer layers.")] = None
    hidden: Annotated[int | None, typer.Option(help="Width.")] = None
    heads: Annotated[int | None, typer.Option(help="Query heads.")] = None
    kv_heads: Annotated[
        int | None, typer.Option(help="Key and value heads; as many as --heads when absent.")
    ] = None
    ffn: Annotated[int | None, typer.Option(help="Width inside of the FFN, or of each expert.")] = (
        None
    )
    vocabulary: Annotated[int | None, typer.Option(help="Tokens that the model knows.")] = None
    sequence: Annotated[int | None, typer.Option(help="Tokens of a sample.")] = None
    gated_ffn: Annotated[bool, typer.Option(help="Two input projections, as SwiGLU has.")] = False
    experts: Annotated[int, typer.Option(help="Experts of each layer; 0 = none.")] = 0
    active_experts: Annotated[int, typer.Option(help="Experts that take each token.")] = 1
    biases: Annotated[bool, typer.Option(help="Linear layers and norms have biases.")] = False
    learned_positions: Annotated[
        bool, typer.Option(help="Positions are a table of the sequence's length.")
    ] = False
    tied: Annotated[bool, typer.Option(help="The output is the embedding.")] = False
    stored_attention: Annotated[
        bool, typer.Option(help="Scores are kept: attention is not computed in tiles.")
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainOptions:
    """A chain of measured layers instead."""

    profile: Annotated[
        str,
        typer.Option(
            help="Measured layers instead of dimensions: a CSV or JSON of name, forward_s,"
            " backward_s, activation_bytes, parameter_bytes (and saved_bytes), for one microbatch"
            " on one device; - = stdin."
        ),
    ] = ""
    microbatches: Annotated[
        int | None, typer.Option(help="With --profile: microbatches of a step, over all replicas.")
    ] = None
    microbatch: Annotated[
        int, typer.Option(help="With --profile: samples of the microbatch it was taken with.")
    ] = 1
    state_factor: Annotated[
        float,
        typer.Option(
            help="With --profile: bytes of weights, gradients and optimizer per byte of weights;"
            " 4 = Adam in one precision."
        ),
    ] = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceOptions:
    """Devices, and how fast they and their links are."""

    devices: Annotated[int | None, typer.Option(help="Devices to use, all of them.")] = None
    devices_per_node: Annotated[int | None, typer.Option(help="Devices of a node.")] = None
    accelerator: Annotated[
        str,
        typer.Option(help="DeviceProfile of the cluster with memory, peak and bandwidth."),
    ] = ""
    memory: Annotated[
        str, typer.Option(help="Memory of a device for the program, as 74Gi or 80G.")
    ] = ""
    peak_tflops: Annotated[
        float | None, typer.Option(help="Peak of half precision, in 10^12 FLOP/s.")
    ] = None
    memory_bandwidth: Annotated[
        float | None, typer.Option(help="Of a device's memory, in GB/s.")
    ] = None
    efficiency: Annotated[
        float | None,
        typer.Option(
            help="Part of the peak that large matrix products reach, as measured; 0.7 and a wider"
            " range of the prediction when absent."
        ),
    ] = None
    device_link: Annotated[
        float | None,
        typer.Option(help="Between two devices of a node, each way, in GB/s that are reached."),
    ] = None
    node_link: Annotated[
        float | None,
        typer.Option(help="Of a device to another node, each way, in GB/s that are reached."),
    ] = None
    device_latency: Annotated[
        float, typer.Option(help="Of a message between devices of a node, in microseconds.")
    ] = 0.0
    node_latency: Annotated[
        float, typer.Option(help="Of a message between nodes, in microseconds.")
    ] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOptions:
    """The program that executes the plan."""

    global_batch: Annotated[
        int | None, typer.Option(help="Samples of a step, of a transformer.")
    ] = None
    framework: Annotated[
        PlanProgram,
        typer.Option(help="Program to give the plan to; Other = advice for any."),
    ] = PlanProgram.OTHER
    files: Annotated[str, typer.Option(help="Folder to write the plan's files to.")] = ""
