# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Renders a search: the trials in a table, their curves as lines of text or a figure.

Names, parameters and reasons are untrusted tenants' text, so they are never read as markup, and
unprintable characters are shown by their code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ullage.cli.tables import BAD, GOOD, QUIET, age, table_of
from ullage.cli.tuning import TrialRow, TrialState, TuningView
from ullage.cluster.records.tuning import TuningStatus

if TYPE_CHECKING:
    from ullage_simulate.plotter import Axes

MOST_ROWS: Final = 40
"""Trials in a table that is not wide."""
MOST_CURVES: Final = 8
_LONGEST: Final = 60
"""Characters of the parameters in a table that is not wide."""
_STYLES: Final = {
    TrialState.RUNNING: GOOD,
    TrialState.COMPLETE: GOOD,
    TrialState.FAILED: BAD,
    TrialState.STOPPED: QUIET,
}
_BARS: Final = "▁▂▃▄▅▆▇█"
_COLUMNS, _LINES = 60, 12


def plain(text: str) -> str:
    """A tenant's text for display: unprintable characters by their code."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "replace").decode()
        for character in text.encode(errors="replace").decode()
    )


def search(view: TuningView, now: float, *, wide: bool = False) -> RenderableType:
    """A search: its state, its groups, and a line for each started trial.

    Args:
        view: The search.
        now: Seconds since the epoch.
        wide: All trials, with all parameters, curves, nodes and TrainingJobs.
    """
    status = view.record.status
    parts: list[RenderableType] = [_head(view, now)]
    if status.message:
        parts.append(Text(plain(status.message)))
    best = status.best_trial
    if best is not None:
        parameters = ", ".join(f"{name}={value}" for name, value in best.parameters)
        text = f"best: {best.name}, {best.value!r} at epoch {best.epoch} ({parameters})"
        parts.append(Text(plain(text), style=GOOD))
    if status.groups:
        parts.append(_groups(status))
    parts.append(_trials(view, wide=wide))
    return Group(*parts)


def _head(view: TuningView, now: float) -> Text:
    record, counts = view.record, view.record.status.trials
    words = [
        f"{record.terms.algorithm.value} {record.terms.goal.value.lower()}s {record.metric}",
        f"{counts.running} running, {counts.waiting} waiting, {counts.paused} paused,"
        f" {counts.ended} ended ({counts.stopped} stopped, {counts.failed} failed)",
    ]
    if record.status.start_time:
        end = record.status.completion_time or now
        words.append(age(end - record.status.start_time))
    return Text.assemble(
        (f"TuningJob {record.ref.namespace}/{record.ref.name}", "bold"),
        f"  {record.status.phase or 'Pending'}  ",
        plain("; ".join(words)),
    )


def _groups(status: TuningStatus) -> Table:
    table = table_of("GROUP", numbers=("EPOCH", "TRIALS", "ENDED", "MAKESPAN", "BOUND", "USED"))
    for group in status.groups:
        known = group.makespan_eta > 0
        table.add_row(
            Text(plain(group.name)),
            str(group.epoch),
            str(group.trials),
            str(group.ended),
            age(group.makespan_eta) if known else "-",
            age(group.lower_bound) if known else "-",
            f"{float(group.utilisation or 0):.0%}" if known else "-",
        )
    return table


def _trials(view: TuningView, *, wide: bool) -> RenderableType:
    if not view.trials:
        return Text("no trial has begun yet", style=QUIET)
    table = table_of(
        "TRIAL", "PARAMETERS",
        numbers=("EPOCH", "VALUE", "SHARE"),
        more=("STATE", "REASON", *(("CURVE", "NODES", "TRAININGJOB") if wide else ())),
    )  # fmt: skip
    shown = view.trials if wide else view.trials[:MOST_ROWS]
    for row in shown:
        table.add_row(*_cells(row, wide=wide))
    left = len(view.trials) - len(shown)
    if not left:
        return table
    return Group(table, Text(f"and {left} more: -o wide shows all of them", style=QUIET))


def _cells(row: TrialRow, *, wide: bool) -> tuple[RenderableType, ...]:
    parameters = " ".join(f"{name}={value}" for name, value in row.parameters)
    if not wide and len(parameters) > _LONGEST:
        parameters = f"{parameters[: _LONGEST - 1]}…"
    cells: tuple[RenderableType, ...] = (
        str(row.trial),
        Text(plain(parameters)),
        f"{row.epoch}/{row.target}",
        "-" if row.value is None else f"{row.value:.6g}",
        row.width or "-",
        Text(row.state.value, style=_STYLES.get(row.state, "yellow")),
        Text(plain(row.reason) or "-"),
    )
    if not wide:
        return cells
    job = row.job.ref.name if row.job else "-"
    return (*cells, sparkline(row), Text(plain(row.nodes) or "-"), Text(plain(job)))


def sparkline(row: TrialRow) -> str:
    """The values of a trial, lowest to highest, one per epoch; at most the last 20."""
    values = [value for _, value in row.curve][-20:]
    if not values:
        return "-"
    least, most = min(values), max(values)
    return "".join(_BARS[_place(value, least, most, len(_BARS) - 1)] for value in values)


def _place(value: float, least: float, most: float, steps: int) -> int:
    """Position of a value between two others, 0 to ``steps``; sums of large values stay finite."""
    if least == most:
        return 0
    scale = max(abs(least), abs(most))
    part = (value / scale - least / scale) / (most / scale - least / scale)
    return min(steps, max(0, round(part * steps)))


def curves(view: TuningView) -> RenderableType:
    """Learning curves of the best trials, as lines of text; each trial is a letter."""
    chosen = _with_curves(view)
    if not chosen:
        return Text("no trial has reported a value yet", style=QUIET)
    points = [point for row in chosen for point in row.curve]
    last = max(epoch for epoch, _ in points)
    first = min(epoch for epoch, _ in points)
    least, most = min(value for _, value in points), max(value for _, value in points)
    grid = [[" "] * _COLUMNS for _ in range(_LINES)]
    letters = "ABCDEFGH"
    for letter, row in reversed(list(zip(letters, chosen, strict=False))):  # the best one on top
        for column, value in _line(row.curve, first, last):
            grid[_LINES - 1 - _place(value, least, most, _LINES - 1)][column] = letter
    labels = [f"{most:.4g}", *[""] * (_LINES - 2), f"{least:.4g}"]
    width = max(map(len, labels))
    text = Text()
    for label, line in zip(labels, grid, strict=True):
        text.append(f"{label:>{width}} │{''.join(line).rstrip()}\n")
    text.append(f"{'':>{width}} └{'─' * _COLUMNS}\n")
    text.append(f"{'':>{width}}  {first}{'epoch':^{_COLUMNS - len(f'{first}{last}')}}{last}\n")
    for letter, row in zip(letters, chosen, strict=False):
        parameters = " ".join(f"{name}={value}" for name, value in row.parameters)
        text.append(
            plain(f"{letter} trial {row.trial}: {row.value:.6g}  {parameters}"[:160]) + "\n"
        )
    return text


def _with_curves(view: TuningView) -> list[TrialRow]:
    """The best trials: the furthest ones, by their last value."""
    sign = -1.0 if view.record.terms.maximise else 1.0

    def rank(row: TrialRow) -> tuple[int, float, int]:
        epoch, value = row.curve[-1]
        return -epoch, sign * value, row.trial

    return sorted((row for row in view.trials if row.curve), key=rank)[:MOST_CURVES]


def _line(curve: Sequence[tuple[int, float]], first: int, last: int) -> Sequence[tuple[int, float]]:
    """A value for each column between the ends of a curve, interpolated between epochs."""
    at = [_place(epoch, first, last, _COLUMNS - 1) for epoch, _ in curve]
    points = [(at[0], curve[0][1])]
    for place in range(1, len(curve)):
        begin, end = at[place - 1], at[place]
        low, high = curve[place - 1][1], curve[place][1]
        for column in range(begin + 1, end + 1):
            part = (column - begin) / (end - begin)
            points.append((column, low * (1 - part) + high * part))
    return points


def picture(view: TuningView, where: Path) -> Path:
    """The same curves as a PNG: the file ``where``, or ``curves.png`` in that folder.

    Raises:
        NoPlotter: matplotlib is missing.
        OSError: the file cannot be written.
    """
    from ullage_simulate.plotter import place, plotter, saved

    plots = plotter()
    figure, axes = plots.subplots(1, 1, figsize=(7.2, 4.2))
    _draw(axes, view)
    return saved(plots, figure, place(where, "curves"))


def _draw(axes: Axes, view: TuningView) -> None:
    for row in _with_curves(view):
        epochs, values = [epoch for epoch, _ in row.curve], [value for _, value in row.curve]
        axes.plot(epochs, values, label=f"trial {row.trial}", marker="o", markersize=3)
    axes.set(xlabel="epoch", ylabel=view.record.metric.replace("$", r"\$"))
    axes.set_title(f"{view.record.ref.name}, best trials", fontsize=9)
    axes.legend(fontsize=7)
