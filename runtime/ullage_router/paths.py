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
"""Paths of OpenAI's API; under ``/v1/models`` those of its predecessor's verbs are none."""
_PREDICT: Final = re.compile(r"(/v1/models/[^/?:]+):(?:predict|explain)")
"""Paths of the protocol before: KServe serves both."""
_MODEL: Final = re.compile(
    r"/v2/models/(?P<name>[^/?]+)(?:/versions/(?P<version>[^/?]+))?(?:/(?P<what>ready|infer))?/?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPath:
    """What a path of a model says; ``what`` is ``ready``, ``infer`` or nothing (metadata)."""

    name: str
    version: str = ""
    what: str = ""

    @classmethod
    def of(cls, path: str) -> ModelPath | None:
        """The path as it is on the wire, without its query."""
        found = _MODEL.fullmatch(path.partition("?")[0])
        if found is None:
            return None
        name, version, what = found.group("name", "version", "what")
        return cls(name=unquote(name), version=unquote(version or ""), what=what or "")

    @property
    def text(self) -> str:
        """The path, quoted."""
        path = f"/v2/models/{quote(self.name, safe='')}"
        if self.version:
            path += f"/versions/{quote(self.version, safe='')}"
        return f"{path}/{self.what}" if self.what else path


def ready_path_of(path: str) -> str:
    """The path that says whether the model is ready that a path on the wire asks to infer.

    Empty where the path asks for something else.
    """
    path = path.partition("?")[0]
    if INFER.fullmatch(path):
        return path.removesuffix("infer") + "ready"
    predict = _PREDICT.fullmatch(path)
    return predict[1] if predict else ""
