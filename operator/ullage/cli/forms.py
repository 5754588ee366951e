# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Values of options. Standard library only: ``--help`` needs nothing else."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

TERMINAL: Final = "terminal"
"""``--plot terminal``: draw with characters; anything else is a path."""
PLOT: Final = "Where pictures go: a file (.png), a folder, or `terminal`."
"""What ``--plot`` means in every command."""


class OutputFormat(StrEnum):
    """Form of an answer."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"

    @property
    def for_people(self) -> bool:
        """True if it is a table."""
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)


class TrialOutput(StrEnum):
    """Form of the answer about a search."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"

    @property
    def for_people(self) -> bool:
        """True if it is a table."""
        return self in (TrialOutput.TABLE, TrialOutput.WIDE)


class CostOutput(StrEnum):
    """Form of the answer about costs."""

    TABLE = "table"
    JSON = "json"


class CostBy(StrEnum):
    """The grouping of one line of costs."""

    JOB = "job"
    TENANT = "tenant"


class TraceKind(StrEnum):
    """Supported formats of traces."""

    KINETO = "kineto"
    CHAKRA = "chakra"


class TraceForm(StrEnum):
    """Form of the answer about a trace."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    PERFETTO = "perfetto"


class PlanProgram(StrEnum):
    """Programs that plans are given to."""

    MEGATRON = "Megatron"
    TORCHTITAN = "Torchtitan"
    TORCH_PIPELINING = "TorchPipelining"
    OTHER = "Other"
