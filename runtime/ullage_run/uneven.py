# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Gives slow ranks of a data-parallel torch program smaller batches, without changes to its code.

The global batch stays the same; only its division among ranks changes. A loss that is the mean
over a batch of ``b`` of ``B`` samples is weighted by ``world * b / B`` where its backward pass
begins, so the mean of all ranks' gradients is the gradient of the mean over the global batch
(``derived``), whatever averages them, and gradients of one sample are as large as in an even
division.

A program is only touched after some of its steps have shown that it is of this kind. Until then,
and where it is not, batches and gradients are exactly those of the program.
"""

from __future__ import annotations

import contextlib
import functools
import os
import secrets
import statistics
import sys
import weakref
from collections import deque
from collections.abc import Callable
from time import monotonic_ns
from typing import Any, Final

from ullage.api.environment import ENV_STRAGGLERS, REBALANCE
from ullage.api.rebalancing import EvenReason
from ullage_run.loss_shape import uneven_reason
from ullage_run.rank_record import BatchDivision, RankWriter, StepTimes, place_in_job
from ullage_run.step_clock import contents
from ullage_run.times import REPORT_APART_NS, REPORT_APART_OF_RANK_NS
from ullage_run.uneven_agreement import Agreement, Position, Report, SizePlan
from ullage_run.uneven_batches import BatchSource, BatchStream, RankBatch, even_size

PROOF_STEPS: Final = 4
"""Steps in a row that must be as expected before batches may change."""
PATIENCE_STEPS: Final = 30
"""Steps after which a program that never was is told why."""
TIMED_LEAST: Final = 3
TIMED_MOST: Final = 8
"""Steps under one plan whose median is a rank's time."""
GATHERS: Final = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_coalesced",
    "_all_gather_base",
    "gather",
    "all_to_all",
    "all_to_all_single",
)


class Balancer:
    """Watches a program's loop and divides its batches.

    Args:
        ranks: Record of this rank, which the division is written to.
    """

    def __init__(self, ranks: RankWriter) -> None:
        self._ranks = ranks
        self.refusal = EvenReason.NONE
        """Why this rank wants even batches."""
        self._sources: weakref.WeakKeyDictionary[Any, BatchSource] = weakref.WeakKeyDictionary()
        self._number = 0
        self._lead: BatchSource | None = None
        self._agreement: Agreement | None = None
        self._models: weakref.WeakSet[Any] = weakref.WeakSet()
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._undivided = False
        self._outer: BatchStream | None = None
        self.in_trainer = 0
        """Trainers that run, which say when they take a batch."""
        self._summed = False
        self._stream: BatchStream | None = None
        self._got: RankBatch | None = None
        """Batch that the program got last."""
        self._fresh = False
        """No model saw it yet."""
        self._used: RankBatch | None = None
        """Batch of the last forward pass."""
        self._awaited = False
        """A backward pass for that batch is to come."""
        self._backward = False
        self._steps = self._proof = 0
        self._odd = EvenReason.NONE
        """What was not as expected in this step."""
        self._samples = 0
        self._times: deque[float] = deque(maxlen=TIMED_MOST)
        self._timed_plan = 0
        self._step_ns: deque[int] = deque(maxlen=TIMED_MOST)
        self._even_ns = 0
        self._reported_ns = 0
        self._batches = 0
        self._world = 1

    # -- batches ---------------------------------------------------------------------------------

    def source_of(self, loader: Any) -> BatchSource | None:
        """Batches of a loader; ``None`` = its own ones."""
        source = self._sources.get(loader)
        if source is None:
            rank, world = place_in_job()
            if world < 2 or self.refusal:
                return None
            if not even_size(loader, rank, world):
                self._undivided = True
                return None
            source = self._sources[loader] = BatchSource(loader, self, self._number, rank, world)
            self._number += 1
        return source

    def plan_at(self, source: BatchSource, position: Position) -> SizePlan:
        """The plan of a batch: an even one but in the loader that trains."""
        if source is self._lead and self._agreement is not None:
            return self._agreement.plan_at(position)
        return SizePlan(0, position, (source.even,) * source.world)

    def arrived(self, stream: BatchStream | None, batch: object) -> None:
        """A loader returns a batch; ``None`` = one whose batches are its own."""
        if stream is None:
            self._got = None
            return
        cut = stream.taken.popleft()
        trains = self._lead is None or stream.source is self._lead
        if trains and contents(batch)[0] != cut.own:
            self._odd = EvenReason.BATCH_NOT_RECOGNIZED
        stream.arrived.append(cut)
        if not stream.source.passed_on:
            self._take(stream)

    def begins_outer(self, loader: Any) -> None:
        """An outer loader begins to iterate this one, and takes batches ahead of the program."""
        source = self.source_of(loader)
        if source is not None:
            source.passed_on = True

    def passed_on(self, loader: Any) -> None:
        """The outer loader gives the next batch to the program."""
        source = self._sources.get(loader)
        if source is None or source.stream is None:
            self._got = None
            return
        self._outer = source.stream
        if not self.in_trainer:
            self._take(source.stream)

    def training_step(self, *, summed: bool) -> None:
        """A trainer takes the next of the batches that it got.

        Args:
            summed: Losses are sums, divided by a number that is the same on all ranks.
        """
        self._summed = summed
        if self._outer is not None:
            self._take(self._outer)

    def _take(self, stream: BatchStream) -> None:
        if not stream.arrived:
            self._odd = EvenReason.FETCHED_AHEAD
            return
        self._stream, self._got, self._fresh = stream, stream.arrived.popleft(), True
        stream.got += 1

    def forward(self, model: Any, arguments: tuple[object, ...], named: dict[str, object]) -> None:
        """A data-parallel model begins a forward pass that a backward pass will follow."""
        self._models.add(model)
        cut, stream = self._got, self._stream
        if cut is None or stream is None:
            return
        rows = contents((arguments, named))[0]
        if rows != cut.own:
            self._odd = EvenReason.BATCH_NOT_RECOGNIZED
        if self._fresh:
            self._fresh = False
            stream.used += 1
            self._samples += cut.own
            self._batches += 1
            if self._awaited:  # one backward pass for two batches, whose weights may differ
                self._odd = EvenReason.BATCH_NOT_RECOGNIZED
            self._awaited = True
        if stream.used != stream.got:
            self._odd = EvenReason.FETCHED_AHEAD
        self._used = cut

    @property
    def weight(self) -> float:
        """Weight of the losses of the last batch that a model saw."""
        cut = self._used
        return 1.0 if cut is None or self._summed else cut.own / cut.even

    def backward(self, losses: Any) -> None:
        """A backward pass begins with these losses."""
        cut = self._used
        if cut is None:
            return
        self._backward, self._awaited = True, False
        if (cut.own != cut.even or not self._proof) and not self.refusal:
            for loss in losses if isinstance(losses, list | tuple) else (losses,):
                self.refuse(uneven_reason(loss, cut.own, self._world, summed=self._summed))

    def gathers(self, tensor: Any) -> None:
        """The program gathers a tensor from all ranks."""
        cut = self._used
        shape: Any = getattr(tensor, "shape", ())
        if (
            cut is not None
            and cut is self._got
            and len(shape)
            and int(shape[0]) in (cut.own, cut.even * self._world)
        ):
            self.refuse(EvenReason.GATHERS_SAMPLES)

    # -- steps -----------------------------------------------------------------------------------

    def timed(self, times: StepTimes) -> None:
        """Times of the step that ends now."""
        cut = self._used
        if cut is None or not self._samples or not cut.full:
            return
        if cut.plan != self._timed_plan:
            self._timed_plan = cut.plan
            self._times.clear()
            self._step_ns.clear()
            return  # the first step of a plan also pays for the change
        self._times.append((times.compute_ns + times.data_wait_ns) / 1e9 / self._samples)
        self._step_ns.append(times.step_ns // max(self._batches, 1))

    def trains(self, optimizer: Any) -> None:
        """An optimizer steps."""
        if self._lead is None:
            self._optimizers.add(optimizer)

    def stepped(self) -> None:
        """The leading optimizer has stepped."""
        _, self._world = place_in_job()
        if self._world < 2:
            return
        self._steps += 1
        cut, stream = self._used, self._stream
        if self._lead is None:
            self._prove()
        elif self._odd and not self.refusal:
            self.refuse(self._odd)
        if (
            self._agreement is not None
            and cut is not None
            and cut.full
            and stream is not None
            and stream.source is self._lead
        ):
            self._agreement.note(self._steps, cut.at, cut.plan, stream.data)
            now = monotonic_ns()
            if now - self._reported_ns >= self._apart_ns:
                self._reported_ns = now
                self._report(self._agreement, stream, cut)
        if self._steps == PATIENCE_STEPS or (self.refusal and not self._reported_ns):
            self._reported_ns = self._reported_ns or 1
            self._write(cut)
        self._odd, self._samples, self._batches, self._backward = EvenReason.NONE, 0, 0, False

    def _prove(self) -> None:
        """Count steps as expected; after enough of them this loader leads."""
        if self.refusal:
            return
        stream, cut = self._stream, self._used
        reason = self._sharded() or self._odd or self._unproven()
        if reason or stream is None or cut is None:
            self._proof = 0
            # weights that are sharded stay so: no later step shows anything else
            if self._steps >= PATIENCE_STEPS or reason is EvenReason.MODEL_SHARDED:
                self.refuse(reason)
            return
        self._proof += 1
        if self._proof < PROOF_STEPS:
            return
        if any(_depends_on_batch(module) for model in self._models for module in model.modules()):
            self.refuse(EvenReason.BATCH_NORM)
            return
        if sys.modules["torch"].cuda.is_initialized():
            # its thread runs ahead of the device, so its times are not those of the work
            self.refuse(EvenReason.NOT_TIMED)
            return
        distributed: Any = sys.modules["torch.distributed"]
        store = distributed.PrefixStore(
            "ullage/stragglers", distributed.distributed_c10d._get_default_store()
        )
        rank, _ = place_in_job()
        source = stream.source
        self._agreement = Agreement(
            store,
            rank,
            self._world,
            source.even,
            poll_s=self._apart_ns / 1e9,
            session=secrets.token_hex(8),
        )
        self._lead = source

    def _sharded(self) -> EvenReason:
        """The reason that weights are ``DTensor``; a divisor of their gradients would be none.

        A backward pass is linear in the weight of its loss, so the weighted sum of gradients is
        that of even batches, whatever constant it is divided by (``derived``).
        """
        sharded: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", None)
        groups = (group for each in self._optimizers for group in each.param_groups)
        if sharded is not None and any(
            isinstance(weight, sharded) for group in groups for weight in group["params"]
        ):
            return EvenReason.MODEL_SHARDED
        return EvenReason.NONE

    def _unproven(self) -> EvenReason:
        if self._stream is None:
            return (
                EvenReason.DATA_NOT_DIVISIBLE if self._undivided else EvenReason.NOT_DATA_PARALLEL
            )
        if not self._backward or self._used is not self._got:
            return EvenReason.BATCH_NOT_RECOGNIZED if self._models else EvenReason.NOT_DATA_PARALLEL
        averaged = {id(weight) for model in self._models for weight in model.parameters()}
        groups = (group for each in self._optimizers for group in each.param_groups)
        for group in groups:
            if any(id(weight) not in averaged for weight in group["params"]):
                return EvenReason.NOT_DATA_PARALLEL
        if any(model.process_group.size() != self._world for model in self._models):
            return EvenReason.NOT_DATA_PARALLEL
        return EvenReason.NONE

    @property
    def _apart_ns(self) -> int:
        return max(REPORT_APART_NS, REPORT_APART_OF_RANK_NS * self._world)

    def _report(self, agreement: Agreement, stream: BatchStream, cut: RankBatch) -> None:
        times = self._times
        unit = statistics.median(times) if len(times) >= TIMED_LEAST else 0.0
        batch_ns = int(statistics.median(self._step_ns)) if self._step_ns else 0
        agreement.exchange(
            Report(
                step=self._steps,
                at=cut.at,
                plan=cut.plan,
                following=stream.source.following,
                data=stream.data,
                unit=unit if self._timed_plan == cut.plan else 0.0,
                batch_s=(batch_ns or REPORT_APART_NS) / 1e9,
                refusal=self.refusal,
            )
        )
        self.refuse(agreement.refusal)
        if batch_ns and len(set(agreement.current.sizes)) == 1 and unit:
            self._even_ns = batch_ns
        self._write(cut)

    def _write(self, cut: RankBatch | None) -> None:
        self._ranks.divided(
            BatchDivision(
                samples=cut.own if cut is not None else 0,
                even=cut.even if cut is not None else 0,
                reason=self.refusal.code,
                even_step_ns=self._even_ns,
            )
        )

    def refuse(self, reason: EvenReason) -> None:
        """Want even batches from now on."""
        if not self.refusal and reason:
            self.refusal = reason
            self._reported_ns = 0
            _say(f"batches stay even: {reason.value}: {reason.text}")


def _depends_on_batch(module: Any) -> bool:
    """True for BatchNorm of one rank's batch."""
    norms: Any = sys.modules["torch.nn.modules.batchnorm"]
    return (
        isinstance(module, norms._BatchNorm)
        and not isinstance(module, norms.SyncBatchNorm)
        and (module.training or not module.track_running_stats)
    )


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(f"ullage: {text}", file=sys.stderr, flush=True)


class UnevenHook:
    """Connects a :class:`Balancer` with torch. An error in it leaves batches even.

    Args:
        ranks: Record of this rank.
    """

    def __init__(self, ranks: RankWriter) -> None:
        self.balancer = Balancer(ranks)
        self._in_backward = False

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        try:
            return call(*args)
        except Exception as error:  # torch may have another shape, a program any
            if not self.balancer.refusal:
                _say(f"the hook for uneven batches failed: {error!r}")
                self.balancer.refuse(EvenReason.HOOK_FAILED)
            return None

    def timed(self, times: StepTimes) -> None:
        """Times of the step that ends now."""
        self._guarded(self.balancer.timed, times)

    def trains(self, optimizer: object) -> None:
        """An optimizer steps."""
        self._guarded(self.balancer.trains, optimizer)

    def stepped(self) -> None:
        """The leading optimizer has stepped."""
        self._guarded(self.balancer.stepped)

    def register_loader(self, module: Any) -> None:
        """Divide batches of a loaded ``torch.utils.data.dataloader``."""
        loader, iterator = module.DataLoader, module._BaseDataLoaderIter
        own = loader._index_sampler.fget
        advance = iterator.__next__

        def index_sampler(this: Any) -> Any:
            source = self._guarded(self.balancer.source_of, this)
            return own(this) if source is None else source

        @functools.wraps(advance)
        def returned(this: Any) -> Any:
            batch = advance(this)
            stream = getattr(this, "_sampler_iter", None)
            known = stream if type(stream) is BatchStream else None
            self._guarded(self.balancer.arrived, known, batch)
            return batch

        loader._index_sampler = property(index_sampler)
        iterator.__next__ = returned

    def register_accelerate(self, module: Any) -> None:
        """Watch batches of a loaded ``accelerate.data_loader``, which takes one ahead."""
        shard = module.DataLoaderShard
        iterate = shard.__iter__

        @functools.wraps(iterate)
        def watched(this: Any) -> Any:
            inner = this.base_dataloader
            self._guarded(self.balancer.begins_outer, inner)
            for batch in iterate(this):
                self._guarded(self.balancer.passed_on, inner)
                yield batch

        shard.__iter__ = watched

    def register_trainer(self, module: Any) -> None:
        """Watch steps of a loaded ``transformers.trainer``."""
        trainer = module.Trainer
        train, step = trainer.train, trainer.training_step

        @functools.wraps(train)
        def trained(this: Any, *args: Any, **kwargs: Any) -> Any:
            self.balancer.in_trainer += 1
            try:
                return train(this, *args, **kwargs)
            finally:
                self.balancer.in_trainer -= 1

        @functools.wraps(step)
        def stepped(
            this: Any, model: Any, inputs: Any, num_items_in_batch: Any = None, **kwargs: Any
        ) -> Any:
            counted = num_items_in_batch is not None
            scaled_by_it = this.model_accepts_loss_kwargs or this.compute_loss_func
            summed = counted and scaled_by_it and this.args.average_tokens_across_devices
            self._guarded(lambda: self.balancer.training_step(summed=bool(summed)))
            return step(this, model, inputs, num_items_in_batch, **kwargs)

        trainer.train, trainer.training_step = trained, stepped

    def register_parallel(self, module: Any) -> None:
        """Watch forward passes of a loaded ``torch.nn.parallel.distributed``."""
        parallel = module.DistributedDataParallel
        forward = parallel.forward
        torch: Any = sys.modules["torch"]

        @functools.wraps(forward)
        def watched(this: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.compiler.is_compiling() and this.training and torch.is_grad_enabled():
                self._guarded(self.balancer.forward, this, args, kwargs)
            return forward(this, *args, **kwargs)

        parallel.forward = watched

    def register_collectives(self, module: Any) -> None:
        """Watch what a program gathers with a loaded ``torch.distributed.distributed_c10d``."""
        for name in GATHERS:
            call = getattr(module, name, None)
            if callable(call):
                setattr(module, name, self._watching(call))

    def _watching(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched(*args: Any, **kwargs: Any) -> Any:
            for tensor in (*args, *kwargs.values()):
                self._guarded(self.balancer.gathers, tensor)
            return call(*args, **kwargs)

        return watched

    def register_backward(self, autograd: Any) -> None:
        """Weight the backward passes of a loaded ``torch.autograd``."""
        backward = autograd.backward
        torch: Any = sys.modules["torch"]

        @functools.wraps(backward)
        def weighted(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if self._in_backward:  # of a part that is computed again, whose loss has its weight
                return backward(tensors, grad_tensors, *args, **kwargs)
            self._guarded(self.balancer.backward, tensors)
            weight = self.balancer.weight
            if weight != 1:
                grad_tensors = scaled(torch, tensors, grad_tensors, weight)
            self._in_backward = True
            try:
                return backward(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._in_backward = False

        autograd.backward = weighted


def scaled(torch: Any, tensors: Any, gradients: Any, weight: float) -> Any:
    """Gradients by which a backward pass begins, times a weight; those left out are ones.

    A tensor of more than one element without a gradient keeps none: torch refuses it.
    """
    if isinstance(tensors, torch.Tensor):
        if isinstance(gradients, list | tuple):
            gradients = gradients[0] if gradients else None
        return _scaled(torch, tensors, gradients, weight)
    tensors = tuple(tensors)
    if gradients is None or isinstance(gradients, torch.Tensor):
        gradients = (gradients,) * len(tensors)
    return tuple(
        _scaled(torch, tensor, gradient, weight)
        for tensor, gradient in zip(tensors, gradients, strict=True)
    )


def _scaled(torch: Any, tensor: Any, gradient: Any, weight: float) -> Any:
    if gradient is not None:
        return gradient * weight
    return torch.full_like(tensor, weight) if tensor.numel() == 1 else None


def hook_of(ranks: RankWriter) -> UnevenHook | None:
    """The hook, where the policy of this container asks for it."""
    if os.environ.get(ENV_STRAGGLERS) != REBALANCE:
        return None
    return UnevenHook(ranks)
