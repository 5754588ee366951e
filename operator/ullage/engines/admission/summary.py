# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The part of a learned model that outlives a restart: small, plain JSON; rows are kept elsewhere.

With the same rows, learning from a summary conditions on them again and fits nothing. Thresholds
that refuse have no value in JSON, since infinity is no number there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ullage.engines.admission.calibration import Band, Threshold
from ullage.engines.admission.ladder import Trim
from ullage.engines.admission.model import LearnedModel
from ullage.engines.admission.pair_kernel import Shape
from ullage.engines.admission.records import Group, Rung

HYPER_PARAMETERS = 10


def to_summary(model: LearnedModel) -> dict[str, object]:
    """The model as JSON: version, hyper-parameters, rungs, trims and thresholds."""
    return {
        "accelerator": model.accelerator,
        "version": model.version,
        "rows": model.rows,
        "hyperParameters": list(model.hyper),
        "tail": model.tail,
        "shape": model.shape.value,
        "rungs": {group.value: rung.value for group, rung in sorted(model.rungs.items())},
        "trims": [
            {
                "group": group.value,
                "rung": rung.value,
                "centre": trim.centre,
                "slope": trim.slope,
                "spread": trim.spread,
            }
            for (group, rung), trim in sorted(model.trims.items())
        ],
        "thresholds": [
            {
                "group": group.value,
                "band": band.value,
                "rows": one.rows,
                "admitted": one.admitted,
                "violations": one.violations,
                "needed": one.needed,
                "pooled": [lent.value for lent in one.pooled],
            }
            | ({} if one.refuses else {"value": one.value})
            for (group, band), one in sorted(model.thresholds.items())
        ],
    }


def from_summary(raw: Mapping[str, object]) -> LearnedModel:
    """A model without rows and cells, to be given to learning as the previous one.

    Raises:
        ValueError: a field is missing, of the wrong type, or no number; names it.
    """
    hyper = tuple(_number(one, "hyperParameters") for one in _items(raw, "hyperParameters"))
    if len(hyper) not in (0, HYPER_PARAMETERS):
        raise ValueError(f"hyperParameters: {len(hyper)} numbers, {HYPER_PARAMETERS} are needed")
    rungs = raw.get("rungs")
    if not isinstance(rungs, Mapping):
        raise ValueError("rungs: an object is needed")
    model = LearnedModel(
        accelerator=str(raw.get("accelerator", "")),
        version=_whole(raw, "version"),
        rows=_whole(raw, "rows"),
        hyper=hyper,
        tail=_number(raw.get("tail", 0.0), "tail"),
        shape=Shape(str(raw.get("shape", Shape.GAUSSIAN.value))),
        rungs={Group(str(group)): Rung(str(rung)) for group, rung in rungs.items()},
    )
    trims = dict(_trim(one) for one in _items(raw, "trims"))
    return replace(
        model, trims=trims, thresholds=dict(_threshold(one) for one in _items(raw, "thresholds"))
    )


def _trim(raw: object) -> tuple[tuple[Group, Rung], Trim]:
    one = _object(raw, "trims")
    values = {name: _number(one.get(name), name) for name in ("centre", "slope", "spread")}
    return (Group(str(one.get("group"))), Rung(str(one.get("rung")))), Trim(**values)


def _threshold(raw: object) -> tuple[tuple[Group, Band], Threshold]:
    one = _object(raw, "thresholds")
    value = _number(one["value"], "value") if "value" in one else math.inf
    counts = {name: _whole(one, name) for name in ("rows", "admitted", "violations", "needed")}
    key = Group(str(one.get("group"))), Band(str(one.get("band")))
    pooled = tuple(Group(str(lent)) for lent in _items(one, "pooled"))
    return key, Threshold(value=value, pooled=pooled, **counts)


def _items(raw: Mapping[str, object], name: str) -> list[object]:
    found = raw.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name}: a list is needed")
    return found


def _object(raw: object, name: str) -> Mapping[str, object]:
    if not isinstance(raw, Mapping):
        raise ValueError(f"{name}: every item must be an object")
    return raw


def _whole(raw: Mapping[str, object], name: str) -> int:
    found = raw.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"{name}: a whole number >= 0 is needed, not {found!r}")
    return found


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name}: a finite number is needed, not {value!r}")
    return float(value)
