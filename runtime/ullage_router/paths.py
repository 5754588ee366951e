# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Paths of the Open Inference Protocol over HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

INFER: Final = re.compile(r"/v2/models/[^/?]+(?:/versions/[^/?]+)?/infer")
MODELS: Final = re.compile(r"/v2(?:/models/[^/?]+(?:/versions/[^/?]+)?(?:/ready)?)?/?")
READY: Final = "/v2/health/ready"
SERVER: Final = "/v2"
OPENAI: Final = re.compile(
    r"(?:/openai)?/v1/(?!models/[^/]+:(?:predict|explain|classify|regress)$).*"
    r"|/(?:chat/)?completions"
)
"""Paths of OpenAI's API; paths under ``/v1/models`` with the verbs of protocol v1 are excluded."""
_PREDICT: Final = re.compile(r"(/v1/models/[^/?:]+):(?:predict|explain)")
"""Paths of protocol v1: KServe serves both."""
_MODEL: Final = re.compile(
    r"/v2/models/(?P<name>[^/?]+)(?:/versions/(?P<version>[^/?]+))?(?:/(?P<what>ready|infer))?/?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPath:
    """The parts of a model's path; ``what`` is ``ready``, ``infer`` or nothing (metadata)."""

    name: str
    version: str = ""
    what: str = ""

    @classmethod
    def of(cls, path: str) -> ModelPath | None:
        """Parse a path from the wire, without its query."""
        match = _MODEL.fullmatch(path.partition("?")[0])
        if match is None:
            return None
        name, version, what = match.group("name", "version", "what")
        return cls(name=unquote(name), version=unquote(version or ""), what=what or "")

    @property
    def text(self) -> str:
        """The path, quoted."""
        path = f"/v2/models/{quote(self.name, safe='')}"
        if self.version:
            path += f"/versions/{quote(self.version, safe='')}"
        return f"{path}/{self.what}" if self.what else path


def ready_path_of(path: str) -> str:
    """The readiness path of the model that an infer path names.

    Empty for any other path.
    """
    path = path.partition("?")[0]
    if INFER.fullmatch(path):
        return path.removesuffix("infer") + "ready"
    predict = _PREDICT.fullmatch(path)
    return predict[1] if predict else ""
