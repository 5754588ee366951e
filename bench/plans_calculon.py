# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Calculon beside the planner: its times of published steps, and its opinion of chosen plans.

Calculon (Apache-2.0, github.com/calculon-ai/calculon) is run from a checkout outside of this
repository, by an interpreter that has what it needs; nothing of it is copied.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ullage.engines.parallelism.dimensions import ParallelDegrees, Recomputation, TransformerShape

END_TO_END: Final = "End-to-end"
LIMIT_S: Final = 300
SYSTEM: Final = "systems/a100_80g.json"
JUDGE: Final = """
import json, logging, sys
import calculon
from calculon.llm import Llm
from calculon.system import System
system = System(calculon.io.read_json_file(sys.argv[1]))
times = []
for model, execution in json.load(sys.stdin):
    llm = Llm(Llm.Application(model), logging.getLogger())
    llm.compile(system, Llm.Execution.from_json(execution))
    llm.run(system)
    times.append(llm.get_stats_json(False)["total_time"])
print(json.dumps(times))
"""
RECOMPUTED: Final = {
    Recomputation.NONE: "none",
    Recomputation.SELECTIVE: "attn_only",
    Recomputation.FULL: "full",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calculon:
    """A checkout.

    Attributes:
        folder: The checkout.
        python: An interpreter with numpy, pandas and psutil.
    """

    folder: Path
    python: str

    def published(self) -> dict[str, tuple[float, float]]:
        """Seconds of each model with full and selective recomputation.

        Raises:
            OSError: it cannot be started.
            ValueError: it failed, or its table has another form; the text says how.
        """
        return read_published(self._run(["bin/calculon", "llm-validation"]))

    def judged(self, plans: Sequence[tuple[TransformerShape, ParallelDegrees, int]]) -> list[float]:
        """Seconds of each shape with its degrees and batch; errors as of :meth:`published`."""
        asked = [[_model(shape), _execution(degrees, batch)] for shape, degrees, batch in plans]
        times: list[float] = json.loads(self._run(["-c", JUDGE, SYSTEM], json.dumps(asked)))
        return times

    def _run(self, arguments: Sequence[str], given: str = "") -> str:
        try:
            ran = subprocess.run(
                [self.python, *arguments],
                cwd=self.folder,
                env={"PYTHONPATH": ".", "PATH": "/usr/bin:/bin"},
                input=given,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"it takes more than {LIMIT_S} s") from error
        if ran.returncode:
            raise ValueError((ran.stderr.strip().splitlines() or ["no output"])[-1])
        return ran.stdout


def read_published(output: str) -> dict[str, tuple[float, float]]:
    """Seconds from what ``llm-validation`` prints.

    Raises:
        ValueError: the table of end-to-end times is not there.
    """
    _, _, table = output.partition(END_TO_END)
    steps = {}
    for line in table.splitlines():
        cells = line.split(",")
        if len(cells) > 8 and cells[1] == "|" and cells[0].endswith(("B", "T")):
            steps[cells[0].rpartition("-")[2]] = (float(cells[3]), float(cells[8]))
    if not steps:
        raise ValueError("its output has no table of end-to-end times")
    return steps


def _model(shape: TransformerShape) -> dict[str, int]:
    return {
        "hidden": shape.hidden,
        "feedforward": shape.ffn,
        "seq_size": shape.sequence,
        "attn_heads": shape.heads,
        "attn_size": shape.hidden // shape.heads,
        "num_blocks": shape.layers,
    }


def _execution(degrees: ParallelDegrees, batch: int) -> dict[str, object]:
    shared = degrees.sequence_parallel and degrees.tensor > 1
    return {
        "num_procs": degrees.devices,
        "tensor_par": degrees.tensor,
        "pipeline_par": degrees.pipeline,
        "data_par": degrees.data,
        "tensor_par_net": 0,
        "pipeline_par_net": 1,
        "data_par_net": 1,
        "batch_size": batch,
        "microbatch_size": degrees.microbatch,
        "datatype": "float16",
        "fused_activation": False,
        "attention_type": "multihead",
        "activation_recompute": RECOMPUTED[degrees.recomputation],
        "pipeline_interleaving": degrees.chunks,
        "optimizer_sharding": degrees.distributed_optimizer and degrees.data > 1,
        "tensor_par_comm_type": "rs_ag" if shared else "ar",
        "tensor_par_overlap": "none",
        "seq_par_ag_redo": shared,
        "data_par_overlap": False,
        "weight_offload": False,
        "activations_offload": False,
        "optimizer_offload": False,
        "training": True,
    }
