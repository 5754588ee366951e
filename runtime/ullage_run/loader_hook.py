# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Tunes the workers of torch's own DataLoader from epoch to epoch (``spec.data.io``).

torch reads ``num_workers`` and ``prefetch_factor`` when an iterator is made, so a change takes
effect with the next one. Nothing is changed within an epoch, no sample is skipped or read twice. A
loader whose data set shards itself (IterableDataset), holds open files, or does not work in a
worker keeps its settings: the report then says what to write.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns, thread_time_ns
from typing import Any, Final

from ullage.api.captures import LOADER_BYTES_MOST, LOADER_FILES
from ullage.api.environment import ENV_LOADER
from ullage_run.loader_choice import Epoch, LoaderChoice, LoaderSettings
from ullage_run.rank_record import RankWriter
from ullage_run.step_clock import contents
from ullage_run.times import LOADER_EPOCH_LEAST_NS, LOADER_TIMEOUT_LEAST_S

BATCHES_LEAST: Final = 8
"""Batches of an epoch from which it counts; the first one waits for the workers to start."""
LOADS_MOST: Final = 20
"""A worker that has not delivered after so many times of a load hangs."""
SHARED_MEMORY: Final = "/dev/shm"
SHARED_PART: Final = 0.5
"""Part of the free shared memory that batches on their way may take."""
OBJECTS_MOST: Final = 256
"""Objects of a data set that are looked at for open files."""
DEPTH_MOST: Final = 3
WORKERS_MOST: Final = 64
_PLAIN: Final = (str, bytes, int, float, bool, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderLimits:
    """Limits that the job sets.

    Attributes:
        most: Most workers of a loader; 0 = none is tuned.
        start: Settings of the last run, to begin with.
    """

    most: int = 0
    start: LoaderSettings | None = None

    @classmethod
    def of(cls, text: str) -> LoaderLimits:
        """Read ``8`` or ``8,6,2``: most workers, then workers and prefetch of the last run."""
        numbers = [int(word) for word in text.split(",") if word.isascii() and word.isdigit()]
        if not numbers or len(text) > 100:
            return cls()
        most = min(numbers[0], WORKERS_MOST)
        if len(numbers) < 3 or not 0 < numbers[1] <= most:
            return cls(most=most)
        return cls(most=most, start=LoaderSettings(numbers[1], max(1, min(numbers[2], 16))))


@dataclass(slots=True, eq=False)
class _Run:
    """One epoch of a loader as it goes on."""

    loader: Any
    settings: LoaderSettings
    began_ns: int
    returned_ns: int = 0
    batches: int = 0
    wait_ns: int = 0
    compute_ns: int = 0
    cpu_ns: int = 0
    batch_bytes: int = 0
    instead: Any = None
    """The iterator that replaced one whose workers did not work."""
    restore_timeout: float | None = None

    @property
    def epoch(self) -> Epoch | None:
        """Its means; ``None`` = too short to say."""
        timed = self.batches - 1
        if self.batches < BATCHES_LEAST or self.returned_ns - self.began_ns < LOADER_EPOCH_LEAST_NS:
            return None
        return Epoch(
            wait_s=self.wait_ns / timed / 1e9,
            compute_s=self.compute_ns / timed / 1e9,
            cpu_s=self.cpu_ns / timed / 1e9,
        )


@dataclass(slots=True, eq=False)
class _Tuned:
    """A loader that is followed."""

    first: LoaderSettings
    choice: LoaderChoice
    wanted: LoaderSettings
    run: _Run | None = None
    fixed: str = ""
    """Why its settings stay; empty = they may change."""
    first_epoch: Epoch | None = None
    batch_bytes: int = 0
    reported: dict[str, object] = field(default_factory=dict)


class LoaderHook:
    """The loaders of this process.

    Args:
        ranks: Says where reports go.
        limits: Of the job.
    """

    def __init__(self, ranks: RankWriter, limits: LoaderLimits) -> None:
        self._ranks = ranks
        self._limits = limits
        self._tuned: weakref.WeakKeyDictionary[Any, _Tuned] = weakref.WeakKeyDictionary()
        self._runs: weakref.WeakKeyDictionary[Any, _Run] = weakref.WeakKeyDictionary()
        self._pid = os.getpid()

    @classmethod
    def from_environment(cls, ranks: RankWriter) -> LoaderHook:
        """The hook that the job's environment asks for."""
        return cls(ranks, LoaderLimits.of(os.environ.get(ENV_LOADER, "")))

    def install(self, loader_module: Any) -> None:
        """Follow the loaders of a loaded ``torch.utils.data.dataloader``, if the job allows it."""
        if not self._limits.most:
            return
        loader_class, iterator_class = loader_module.DataLoader, loader_module._BaseDataLoaderIter
        iterate, advance = loader_class.__iter__, iterator_class.__next__

        @functools.wraps(iterate)
        def begins(loader: Any) -> Any:
            if os.getpid() != self._pid:
                return iterate(loader)
            self._attempt(self._begin, loader, loader_module)
            try:
                iterator = iterate(loader)
            except Exception:
                # workers that cannot be started at all, as for a data set that cannot be pickled
                if not self._attempt(self._give_up, loader, "its workers do not start"):
                    raise
                return iterate(loader)
            self._attempt(self._follow, loader, iterator)
            return iterator

        @functools.wraps(advance)
        def advanced(iterator: Any) -> Any:
            run = self._runs.get(iterator)
            if run is None:
                return advance(iterator)
            return self._next(iterator, run, advance, iterate)

        loader_class.__iter__ = begins
        iterator_class.__next__ = advanced

    # -- an epoch ----------------------------------------------------------------------------------

    def _begin(self, loader: Any, loader_module: Any) -> None:
        """Apply the settings of this epoch, before the iterator is made."""
        tuned = self._tuned.get(loader)
        if tuned is None:
            settings = _settings_of(loader)
            choice = LoaderChoice(most=self._limits.most, cores=_cores())
            tuned = _Tuned(settings, choice, settings)
            iterable = loader_module._DatasetKind.Iterable
            if getattr(loader, "_dataset_kind", None) == iterable:
                tuned.fixed = "its IterableDataset shards itself"
            elif not settings.workers and holds_files(loader.dataset):
                tuned.fixed = "its data set holds open files, which workers would share"
            elif self._limits.start is not None:
                tuned.wanted = self._limits.start
            self._tuned[loader] = tuned
        else:
            self._end(tuned)
        if not tuned.fixed:
            _apply(loader, tuned.wanted)

    def _follow(self, loader: Any, iterator: Any) -> None:
        tuned = self._tuned.get(loader)
        if tuned is None:
            return
        run = _Run(loader, _settings_of(loader), monotonic_ns())
        if run.settings.workers and run.settings != tuned.first and not iterator._timeout:
            load_s = max((epoch.step_s for epoch in tuned.choice.epochs.values()), default=0.0)
            run.restore_timeout = iterator._timeout
            iterator._timeout = max(LOADER_TIMEOUT_LEAST_S, LOADS_MOST * load_s)
        tuned.run = self._runs[iterator] = run

    def _next(
        self,
        iterator: Any,
        run: _Run,
        advance: Callable[[Any], Any],
        iterate: Callable[[Any], Any],
    ) -> Any:
        if run.instead is not None:
            return advance(run.instead)
        began, cpu = monotonic_ns(), thread_time_ns()
        try:
            batch = advance(iterator)
        except StopIteration:
            run.returned_ns = run.returned_ns or began
            raise
        except Exception:
            # before the first batch the epoch can restart without repeating a sample
            why = "its data set does not work in a worker process"
            if run.batches or not self._attempt(self._give_up, run.loader, why):
                raise
            run.instead = iterate(run.loader)
            return advance(run.instead)
        self._attempt(self._count, iterator, run, batch, began, cpu)
        return batch

    def _count(self, iterator: Any, run: _Run, batch: object, began: int, cpu: int) -> None:
        now = monotonic_ns()
        if run.batches:
            run.wait_ns += now - began
            run.cpu_ns += thread_time_ns() - cpu
            run.compute_ns += began - run.returned_ns
        else:
            run.began_ns = now
            run.batch_bytes = contents(batch)[1]
            if run.restore_timeout is not None:
                iterator._timeout = run.restore_timeout
        run.batches += 1
        run.returned_ns = now

    def _end(self, tuned: _Tuned) -> None:
        """Take in the epoch that has ended, and choose the settings of the next."""
        run, tuned.run = tuned.run, None
        epoch = run.epoch if run is not None and run.instead is None else None
        if run is None or epoch is None:
            return
        tuned.batch_bytes = max(tuned.batch_bytes, run.batch_bytes)
        tuned.first_epoch = tuned.first_epoch or epoch
        wanted = tuned.choice.next(run.settings, epoch)
        if not tuned.fixed:
            tuned.wanted = self._within_memory(tuned, wanted)
        self._report(tuned, wanted)

    def _within_memory(self, tuned: _Tuned, wanted: LoaderSettings) -> LoaderSettings:
        """As many workers as shared memory has room for their batches; containers have 64 MiB."""
        if not wanted.workers or not tuned.batch_bytes:
            return wanted
        with contextlib.suppress(OSError):
            room = os.statvfs(SHARED_MEMORY)
            free = SHARED_PART * room.f_bavail * room.f_frsize
            most = int(free // (tuned.batch_bytes * wanted.prefetch))
            if most < wanted.workers:
                tuned.choice.settled = True
                return LoaderSettings(most, wanted.prefetch) if most else tuned.first
        return wanted

    def _give_up(self, loader: Any, why: str) -> None:
        """Go back to settings that work.

        Raises:
            LookupError: the settings are the program's own, so the error is, too.
        """
        tuned = self._tuned.get(loader)
        now = _settings_of(loader)
        if tuned is None or now == tuned.first:
            raise LookupError("these are the program's own settings")
        tuned.wanted = tuned.first
        tuned.fixed = why
        _apply(loader, tuned.first)
        self._report(tuned, tuned.first)

    # -- reports -----------------------------------------------------------------------------------

    def _report(self, tuned: _Tuned, wanted: LoaderSettings) -> None:
        """Tell the agent what was chosen and what it brought."""
        choice, first = tuned.choice, tuned.first_epoch
        best = choice.best or tuned.first
        newest = choice.epochs.get(best)
        state = "Tuning"
        if tuned.fixed:
            state = "Fixed"
        elif choice.settled:
            state = "Tuned"
        to = wanted if tuned.fixed else best
        report: dict[str, object] = {
            "state": state,
            "from": [tuned.first.workers, tuned.first.prefetch],
            "to": [to.workers, to.prefetch],
            "wait": [round(100 * epoch.waits) if epoch else 0 for epoch in (first, newest)],
            "step": [round(1e6 * epoch.step_s) if epoch else 0 for epoch in (first, newest)],
            "text": tuned.fixed,
        }
        if report == tuned.reported or not self._ranks.folder or not self._longest(tuned):
            return
        tuned.reported = report
        path = os.path.join(self._ranks.folder, LOADER_FILES[self._ranks.index])
        body = json.dumps(report).encode()
        if len(body) > LOADER_BYTES_MOST:
            return
        with contextlib.suppress(OSError):  # a full or missing directory
            with open(f"{path}.tmp", "wb") as file:
                file.write(body)
            os.replace(f"{path}.tmp", path)

    def _longest(self, tuned: _Tuned) -> bool:
        """True for the loader whose epochs wait longest: one report a process."""
        own = tuned.first_epoch.wait_s if tuned.first_epoch else 0.0
        others = [other.first_epoch.wait_s for other in self._tuned.values() if other.first_epoch]
        return own >= max(others, default=0.0)

    def _attempt(self, call: Callable[..., None], *args: object) -> bool:
        """Call; an error of ours never reaches the program."""
        try:
            call(*args)
        except LookupError:
            return False
        except Exception as error:  # torch may have another shape
            self._limits = LoaderLimits()
            self._pid = -1  # nothing is followed any more
            with contextlib.suppress(OSError, ValueError):
                print(f"ullage: loaders are not tuned: {error!r}", file=sys.stderr, flush=True)
            return False
        return True


def _settings_of(loader: Any) -> LoaderSettings:
    return LoaderSettings(int(loader.num_workers), int(loader.prefetch_factor or 2))


def _apply(loader: Any, settings: LoaderSettings) -> None:
    """Give a loader settings for its next iterator."""
    if settings == _settings_of(loader):
        return
    held = getattr(loader, "_iterator", None)
    if held is not None:  # persistent workers: they would be used again
        held._shutdown_workers()
        loader._iterator = None
    loader.num_workers = settings.workers
    loader.prefetch_factor = settings.prefetch if settings.workers else None


def _cores() -> float:
    """Cores that this process may use."""
    try:
        return float(len(os.sched_getaffinity(0)))
    except AttributeError:
        return float(os.cpu_count() or 1)


def holds_files(dataset: object) -> bool:
    """True if an open file, or a handle of a library that has one, is found in a data set.

    Forked workers would share its position, and read wrong samples without an error.
    """
    pending, seen = [(dataset, 0)], 0
    while pending and seen < OBJECTS_MOST:
        item, depth = pending.pop()
        seen += 1
        if isinstance(item, io.IOBase) or _is_handle(item):
            return True
        if depth >= DEPTH_MOST or isinstance(item, _PLAIN):
            continue
        inside: list[object] = []
        if isinstance(item, Mapping):
            inside = list(item.values())[:OBJECTS_MOST] if type(item) is dict else []
        elif type(item) in (list, tuple):
            inside = list(item[:16])  # type: ignore[index]
        else:
            inside = list(getattr(item, "__dict__", {}).values())[:OBJECTS_MOST]
        pending += [(each, depth + 1) for each in inside]
    return False


def _is_handle(item: object) -> bool:
    """True for handles that no fork may share: HDF5, LMDB, SQLite, zip and tar archives."""
    kind = type(item)
    module = kind.__module__.partition(".")[0]
    return (module, kind.__name__) in _HANDLES


_HANDLES: Final = frozenset(
    (
        ("h5py", "File"),
        ("h5py", "Dataset"),
        ("h5py", "Group"),
        ("lmdb", "Environment"),
        ("Environment", "Environment"),
        ("sqlite3", "Connection"),
        ("zipfile", "ZipFile"),
        ("tarfile", "TarFile"),
    )
)
