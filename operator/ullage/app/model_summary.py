# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A learned model as a few figures in a DeviceProfile, and back.

It has what the rows alone do not give: hyper-parameters, rungs, trims, thresholds, and the risk
budget that these were chosen for. A model that was stored and restored, conditioned on the same
rows, is the same model; nothing that can be derived from the rows is stored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from ullage.cluster.codecs.profile import device_model_from_wire, device_model_to_wire
from ullage.cluster.records.profile import DeviceModel, ModelThreshold
from ullage.engines.admission.calibration import Band, Threshold, trials_needed
from ullage.engines.admission.judging import Risk
from ullage.engines.admission.ladder import Trim
from ullage.engines.admission.model import Cells, LearnedModel
from ullage.engines.admission.pair_kernel import KernelShape
from ullage.engines.admission.records import Group, Rung

HYPER_PARAMETERS: Final = 10
"""Number of hyper-parameters of the process: 0 are stored without a fit."""
_RUNGS: Final = tuple(Rung)
_TRIMMED: Final = (Rung.BIAS, Rung.GP)
"""Rungs whose answers are trimmed; the plain ones have a spread of their own."""
_TRIM: Final = ("centre", "slope", "spread")
_MATERN: Final = "kernel.matern"
"""Absent in summaries of an older version, which had only Gaussian similarity."""
_RULE: Final = "risk.rule"
RULE: Final = 2.0
"""Certification of thresholds: they count every pair of classes once (1), and are loosened with
95 % (2). A model of another rule is fitted again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Result of a fit: a model without rows, its risk budget, and its time (seconds)."""

    model: LearnedModel
    risk: Risk
    at_s: float


def stored(fitted: Fitted) -> DeviceModel:
    """The summary as read back from the API."""
    model, risk = fitted.model, fitted.risk
    figures = {f"gp.{number}": value for number, value in enumerate(model.hyper)}
    figures["gp.tail"] = model.tail
    figures[_MATERN] = float(model.shape is KernelShape.MATERN)
    figures |= {f"rung.{group}": _RUNGS.index(rung) for group, rung in model.rungs.items()}
    for (group, rung), trim in model.trims.items():
        if rung in _TRIMMED:
            at = f"trim.{group}.{_RUNGS.index(rung)}"
            figures |= {f"{at}.{name}": getattr(trim, name) for name in _TRIM}
    figures |= {
        "risk.eps": risk.eps,
        "risk.confidence": risk.confidence,
        _RULE: RULE,
    }
    summary = DeviceModel(
        version=model.version,
        rung=max(model.rungs.values(), key=_RUNGS.index, default=Rung.UTILISATION_SUM).value,
        rows=model.rows,
        updated=fitted.at_s,
        hyperparameters=tuple(sorted(figures.items())),
        thresholds=tuple(
            ModelThreshold(
                group=group.value,
                band=band.value,
                threshold=None if threshold.refuses else threshold.value,
                rows=threshold.rows,
                violations=threshold.violations,
            )
            for (group, band), threshold in sorted(model.thresholds.items())
        ),
    )
    return device_model_from_wire(device_model_to_wire(summary))


def restored(accelerator: str, summary: DeviceModel) -> Fitted | None:
    """The fit described by a summary; ``None`` if another version wrote it, or it was edited.

    The model has no rows: condition it on them.
    """
    figures = dict(summary.hyperparameters)
    try:
        if figures.get(_RULE) != RULE:
            return None
        risk = Risk(eps=figures["risk.eps"], confidence=figures["risk.confidence"])
        model = LearnedModel(
            accelerator=accelerator,
            version=summary.version,
            rows=summary.rows,
            hyper=_hyper(figures),
            tail=figures["gp.tail"],
            shape=KernelShape.MATERN if figures.get(_MATERN) else KernelShape.GAUSSIAN,
            rungs={
                Group(name.removeprefix("rung.")): _RUNGS[int(value)]
                for name, value in figures.items()
                if name.startswith("rung.")
            },
            trims=_trims(figures),
            thresholds={
                (Group(threshold.group), Band(threshold.band)): _threshold(threshold, risk)
                for threshold in summary.thresholds
            },
        )
    except (KeyError, ValueError, IndexError):
        return None
    return Fitted(model=model, risk=risk, at_s=summary.updated)


def essence(model: LearnedModel) -> str:
    """Digest of what a model learned, without its version and its cells."""
    content = blake2b(digest_size=16)
    parts = (
        model.hyper,
        model.tail,
        model.shape,
        model.rows,
        model.base_sd,
        sorted(model.rungs.items()),
        sorted((*key, repr(trim)) for key, trim in model.trims.items()),
        sorted((name, repr(profile)) for name, profile in model.classes.items()),
        sorted(model.history.pairs),
        sorted(model.history.family_pairs),
        sorted(model.bias_index.items()),
        sorted((*key, repr(threshold)) for key, threshold in model.thresholds.items()),
    )
    content.update(repr(parts).encode())
    if model.bias is not None:
        content.update(repr((model.bias.mean, model.bias.sd)).encode())
        content.update(model.bias.sensitivity.tobytes())
        content.update(model.bias.aggressiveness.tobytes())
    return content.hexdigest()


def digest(model: LearnedModel) -> str:
    """Digest of a model without its version."""
    content = blake2b(essence(model).encode(), digest_size=16)
    content.update(repr(sorted(model.cells.index.items())).encode())
    content.update(model.cells.mean.tobytes())
    content.update(model.cells.sd.tobytes())
    return content.hexdigest()


def slim(model: LearnedModel) -> LearnedModel:
    """The model without cells and calibration rows, as a further lesson needs it."""
    return replace(model, cells=Cells(), scored=())


def _hyper(figures: Mapping[str, float]) -> tuple[float, ...]:
    names = [name for name in figures if name.startswith("gp.") and name != "gp.tail"]
    if len(names) not in (0, HYPER_PARAMETERS):
        raise ValueError(f"{len(names)} hyper-parameters, {HYPER_PARAMETERS} are needed")
    return tuple(figures[f"gp.{number}"] for number in range(len(names)))


def _trims(figures: Mapping[str, float]) -> dict[tuple[Group, Rung], Trim]:
    trims: dict[tuple[Group, Rung], Trim] = {}
    for name in figures:
        if name.startswith("trim.") and name.endswith(".centre"):
            _, group, rung, _ = name.split(".")
            at = name.removesuffix(".centre")
            trim = Trim(**{figure: figures[f"{at}.{figure}"] for figure in _TRIM})
            if trim.spread <= 0:
                raise ValueError(f"{at}.spread is {trim.spread:g}, no spread")
            trims[Group(group), _RUNGS[int(rung)]] = trim
    return trims


def _threshold(model_threshold: ModelThreshold, risk: Risk) -> Threshold:
    """A stored threshold; the number of missing rows follows from the budget (derived)."""
    refuses = model_threshold.threshold is None
    least = trials_needed(risk.eps, risk.confidence)
    return Threshold(
        value=math.inf if model_threshold.threshold is None else model_threshold.threshold,
        rows=model_threshold.rows,
        admitted=0 if refuses else model_threshold.rows,
        violations=model_threshold.violations,
        needed=least if refuses and model_threshold.rows < least else 0,
    )
