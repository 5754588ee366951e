# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""A torch module and its optimizer as the state of a job in tiers.

::

    state = TorchState(model, optimizer)
    group = Group.join(state)

    def train(step):
        loss = state.step(group, step, lambda part: loss_of(model, samples(step, part)))

    ending = group.run(train, until=10_000)

Every member holds the whole model and applies the same gradients; the owner of a shard pushes it,
and its values are authoritative. When members join or leave, all take the owners' values before the
next step. A batch has a fixed number of parts whose gradients are added in the order of the parts:
so the result is the same to the last bit, regardless of which member computes which part (after the
idea of logical workers in EasyScale, SC 2023). It must never change a parameter, a buffer or the
optimizer before the last gathering of a step has returned.

torch is imported on use, not with this module.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ullage_run.frames import Buffer
from ullage_run.orders import ENV_SHARDS, MAX_DIGITS, MAX_PARTS_BYTES, MemberAssignment
from ullage_run.torch_record import StateError, Stored, Tensor, check, decode, encode, torch_module

__all__ = ["StateError", "TorchState"]

PARTS: Final = 16
"""Parts of a batch: members beyond this number would have nothing to compute."""
_ROUND_BYTES: Final = MAX_PARTS_BYTES // 4 * 3
"""Most bytes of all members in one gathering; the rest is for names and lengths."""
_SIZE: Final = struct.Struct(">Q")
_SEED_PRIME: Final = 1_000_003
_MAX_SEED: Final = 1 << 63


class _Group(Protocol):
    """The used part of :class:`ullage_run.group.Group`."""

    epoch: int
    assignment: MemberAssignment

    def gather(self, data: Buffer) -> dict[str, bytes]: ...


class TorchState:
    """The ``State`` of a group: parameters, persistent buffers, optimizer, schedulers.

    Tensors are divided among the shards by size, largest first, then by name, each to the shard
    with the fewest bytes (LPT, Graham 1969), whole, and with the optimizer's state of that
    parameter. Tied parameters count once; tensors that share memory stay together. Shard 0 also has
    the optimizer's param groups and the schedulers.

    Args:
        module: An ``nn.Module`` whose shapes do not change.
        optimizer: A ``torch.optim.Optimizer`` of its parameters.
        schedulers: ``torch.optim.lr_scheduler`` objects; each is stepped after every step.
        shards: Of the job; ``None`` = from the operator (``ULLAGE_SHARDS``).
        parts: Parts of a batch; at least as many as members.
        seed: With step and part it seeds torch's generators before each part.

    Raises:
        ImportError: torch is missing.
        StateError: a tensor cannot be stored; the text names it.
        ValueError: the number of shards or parts is not usable.
    """

    def __init__(
        self,
        module: Any,
        optimizer: Any,
        *schedulers: Any,
        shards: int | None = None,
        parts: int = PARTS,
        seed: int = 0,
    ) -> None:
        torch_module()
        self._module, self._optimizer, self._schedulers = module, optimizer, schedulers
        self._count = _shards(os.environ) if shards is None else shards
        self._parts, self._seed = parts, seed
        if self._count < 1 or parts < 1:
            raise ValueError(f"{self._count} shards and {parts} parts: at least one of each")
        self._tensors = _tensors(module)
        self._forms = {name: _form(tensor) for name, tensor in self._tensors.items()}
        self._slot_forms: dict[tuple[str, str], tuple[object, ...]] = {}
        self._trained = {
            id(tensor) for group in optimizer.param_groups for tensor in group["params"]
        }
        if not self._trained <= {id(tensor) for tensor in self._tensors.values()}:
            raise StateError("the optimizer has parameters that the module does not have")
        self._buffers = [
            name for name, tensor in self._tensors.items() if not _is_parameter(tensor)
        ]
        self._shard_of = _divide(self._tensors, self._count)
        self._agreed = -1
        self._changed = False

    def values(self, shard: int) -> bytearray:
        """A shard as a record of ``ullage_run.torch_record``.

        Raises:
            StateError: a tensor changed its shape or dtype, or cannot be stored.
        """
        return encode(self._record(shard))

    def take(self, shard: int, data: Buffer | None) -> None:
        """Set a shard's values; ``None`` = the initial ones of module and optimizer.

        Raises:
            StateError: the record is of another model, shard or number of shards; nothing changed.
            RuntimeError: the initial values are gone.
        """
        self._known(shard)
        if data is not None:
            self._apply(shard, decode(data))
        elif self._changed:
            raise RuntimeError(f"shard {shard} is to begin again, but steps were done since")

    def drop(self, shard: int) -> None:
        """Stop owning it: the values stay, because every member computes with all of them."""
        self._known(shard)

    def step(self, group: _Group, step: int, loss_of: Callable[[int], Tensor]) -> float:
        """Do one step with all members.

        Args:
            group: This member's group.
            step: Its number.
            loss_of: Takes the number of a part (0 .. parts - 1), returns the mean loss of its
                samples: a tensor of shape () with a gradient. The result must depend on step and
                part alone. Buffers that it changes (running means) keep the values of part 0, as
                with rank 0 in DistributedDataParallel.

        Returns:
            Mean loss of all parts; the same bits on all members.

        Raises:
            MembersChanged: of the group; abandon the step.
            StateError: a tensor changed its shape, or members have different models.
        """
        self._agree(group)
        mine = [self._compute(step, part, loss_of) for part in self._mine(group.assignment)]
        given = _gather_all(group, encode(mine))
        results = {result["part"]: result for data in given.values() for result in decode(data)}
        if results.keys() != set(range(self._parts)):
            raise StateError(
                f"parts {sorted(results)} of {self._parts} came: members have other numbers of "
                "parts"
            )
        self._changed = True  # the last gathering has returned
        self._finish([results[part] for part in range(self._parts)])
        return float(sum(results[part]["loss"] for part in range(self._parts)) / self._parts)

    def _agree(self, group: _Group) -> None:
        """Take the owners' values under new maps; own shards do not change."""
        if self._agreed == group.epoch:
            return
        owned = set(group.assignment.shards)
        given = _gather_all(group, encode([self._record(shard) for shard in sorted(owned)]))
        records = [record for data in given.values() for record in decode(data)]
        shards = sorted(record["shard"] for record in records)
        if shards != list(range(self._count)):
            raise StateError(f"owners hold shards {shards}, the state has {self._count}")
        for record in records:
            if record["shard"] not in owned:
                self._apply(record["shard"], record)
        self._agreed = group.epoch

    def _mine(self, given: MemberAssignment) -> list[int]:
        """Parts that this member computes: those whose block it has."""
        if given.block_count < self._parts:
            raise ValueError(f"{self._parts} parts, but the data has {given.block_count} blocks")
        blocks = set(given.blocks)
        return [
            part for part in range(self._parts) if part * given.block_count // self._parts in blocks
        ]

    def _compute(self, step: int, part: int, loss_of: Callable[[int], Tensor]) -> dict[str, object]:
        """Loss, gradients and, for part 0, buffers; module and optimizer are unchanged."""
        torch = torch_module()
        before = {name: self._tensors[name].detach().clone() for name in self._buffers}
        torch.manual_seed(_seed_of(self._seed, step, part))
        self._module.zero_grad(set_to_none=True)
        try:
            loss = loss_of(part)
            loss.backward()
            self._read()
            gradients = {
                name: tensor.grad
                for name, tensor in self._tensors.items()
                if id(tensor) in self._trained and tensor.grad is not None
            }
            after = {name: self._tensors[name].detach().clone() for name in self._buffers}
        finally:
            with torch.no_grad():
                for name, value in before.items():
                    self._tensors[name].copy_(value)
        return {
            "part": part,
            "loss": float(loss.detach()),
            "gradients": gradients,
            "buffers": after if part == 0 else {},
        }

    def _finish(self, parts: list[dict[str, Any]]) -> None:
        """Add the gradients in the order of the parts, and step."""
        torch = torch_module()
        with torch.no_grad():
            for name, stored in parts[0]["buffers"].items():
                self._tensors[name].copy_(stored.tensor)
        for name, tensor in self._tensors.items():
            if id(tensor) in self._trained:
                given = [
                    part["gradients"][name].tensor for part in parts if name in part["gradients"]
                ]
                tensor.grad = _mean(given, len(parts), tensor)
        self._optimizer.step()
        for scheduler in self._schedulers:
            scheduler.step()
        self._module.zero_grad(set_to_none=True)

    def _record(self, shard: int) -> dict[str, object]:
        self._known(shard)
        self._read()
        names = [name for name, of in self._shard_of.items() if of == shard]
        record: dict[str, object] = {
            "shard": shard,
            "shards": self._count,
            "tensors": {name: self._tensors[name] for name in names},
            "optimizer": {name: self._slots(name) for name in names},
        }
        if shard == 0:
            record["groups"] = [
                {key: value for key, value in group.items() if key != "params"}
                for group in self._optimizer.param_groups
            ]
            record["schedulers"] = [scheduler.state_dict() for scheduler in self._schedulers]
        return record

    def _slots(self, name: str) -> dict[str, object]:
        """The optimizer's state of a parameter, such as ``exp_avg`` and ``step``."""
        slots: dict[str, object] = dict(self._optimizer.state.get(self._tensors[name], {}))
        for key, value in slots.items():
            if hasattr(value, "shape"):
                form = self._slot_forms.setdefault((name, key), _form(value))
                _same(f"{key} of {name}", form, _form(value))
        return slots

    def _apply(self, shard: int, record: Any) -> None:
        """Write a decoded record into module and optimizer, or refuse it before any change."""
        torch = torch_module()
        self._read()
        tensors, slots = self._checked(shard, record)
        with torch.no_grad():
            for name, stored in tensors.items():
                self._tensors[name].copy_(stored.tensor)
            for name, kept in slots.items():
                self._restore_slots(self._tensors[name], kept)
            if shard == 0:
                self._restore_groups(record["groups"], record["schedulers"])

    def _checked(self, shard: int, record: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and optimizer state of a record that fits this model.

        Raises:
            StateError: it does not.
        """
        try:
            if (record["shard"], record["shards"]) != (shard, self._count):
                raise StateError(
                    f"shard {record['shard']} of {record['shards']} came as shard {shard} of "
                    f"{self._count}"
                )
            tensors, slots = dict(record["tensors"]), dict(record["optimizer"])
            names = {name for name, of in self._shard_of.items() if of == shard}
            if tensors.keys() != names or slots.keys() != names:
                other = sorted(names ^ tensors.keys())
                raise StateError(f"shard {shard} is of another model: {', '.join(other[:3])}")
            for name, stored in tensors.items():
                _same(name, self._forms[name], _form(stored.tensor))
            if any(type(slot) is not dict for slot in slots.values()):
                raise StateError(f"shard {shard} has no state of an optimizer")
            lengths = (len(self._optimizer.param_groups), len(self._schedulers))
            if shard == 0 and (len(record["groups"]), len(record["schedulers"])) != lengths:
                raise StateError("the state has other param groups or schedulers")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, StateError):
                raise
            raise StateError(f"shard {shard} is no state of a torch model: {error!r}") from error
        return tensors, slots

    def _restore_groups(self, groups: list[Any], schedulers: list[Any]) -> None:
        for group, kept in zip(self._optimizer.param_groups, groups, strict=True):
            device = group["params"][0].device
            group.update(
                {key: _placed(value, group.get(key), device) for key, value in kept.items()}
            )
        for scheduler, kept in zip(self._schedulers, schedulers, strict=True):
            scheduler.load_state_dict(_placed(kept, None, "cpu"))

    def _restore_slots(self, parameter: Tensor, kept: Mapping[str, Any]) -> None:
        """Exactly these keys, in their own dtypes: ``load_state_dict`` would cast them."""
        if not kept:
            self._optimizer.state.pop(parameter, None)
            return
        slots = self._optimizer.state[parameter]
        placed = {
            key: _placed(value, slots.get(key), parameter.device) for key, value in kept.items()
        }
        slots.clear()
        slots.update(placed)

    def _read(self) -> None:
        """Read the module again: a forward pass may assign a new tensor to a buffer's name."""
        now = _tensors(self._module)
        if now.keys() != self._forms.keys():
            other = ", ".join(sorted(now.keys() ^ self._forms.keys())[:3])
            raise StateError(f"the module has other tensors than it began with: {other}")
        for name, tensor in now.items():
            _same(name, self._forms[name], _form(tensor))
            if _is_parameter(tensor) and tensor is not self._tensors[name]:
                raise StateError(f"parameter {name} is another one: the optimizer has the old one")
        self._tensors = now

    def _known(self, shard: int) -> None:
        if not 0 <= shard < self._count:
            raise StateError(
                f"shard {shard} of {self._count}: elasticity.backup.shards must be the number of "
                "shards that the program has"
            )


def _tensors(module: Any) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, tied ones once, under their first name."""
    torch = torch_module()
    tensors: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, value in module.state_dict(keep_vars=True).items():
        if not isinstance(value, torch.Tensor):
            raise StateError(f"{name} is extra state of a module: only tensors can be kept")
        check(value, name)
        if id(value) not in seen:
            seen.add(id(value))
            tensors[name] = value
    return tensors


def _divide(tensors: Mapping[str, Tensor], count: int) -> dict[str, int]:
    """The shard of each tensor; the same in every process with the same shapes and names."""
    together: dict[int, list[str]] = {}
    for name, tensor in tensors.items():
        address = tensor.untyped_storage().data_ptr()
        together.setdefault(address or -1 - len(together), []).append(name)
    units = [(sum(tensors[name].nbytes for name in names), names) for names in together.values()]
    filled = [0] * count
    shards: dict[str, int] = {}
    for size, names in sorted(units, key=lambda unit: (-unit[0], unit[1])):
        shard = filled.index(min(filled))
        filled[shard] += size
        shards |= dict.fromkeys(names, shard)
    return shards


def _gather_all(group: _Group, data: Buffer) -> dict[str, bytes]:
    """A gathering of any size, in rounds; the first one gives their number."""
    piece = max(1, _ROUND_BYTES // max(1, len(group.assignment.members)))
    view = memoryview(data)
    first = group.gather(_SIZE.pack(len(view)) + bytes(view[:piece]))
    sizes = {name: _SIZE.unpack_from(part)[0] for name, part in first.items()}
    parts = {name: [part[_SIZE.size :]] for name, part in first.items()}
    for at in range(piece, max(sizes.values()), piece):
        for name, part in group.gather(bytes(view[at : at + piece])).items():
            parts[name].append(part)
    gathered = {name: b"".join(pieces) for name, pieces in parts.items()}
    short = sorted(name for name, data in gathered.items() if len(data) != sizes[name])
    if short:
        raise StateError(f"{', '.join(short)} gave other bytes than announced: other programs?")
    return gathered


def _mean(given: list[Tensor], parts: int, like: Tensor) -> Tensor | None:
    """Sum in order over the number of parts; half precision is added as float32."""
    torch = torch_module()
    if not given:
        return None
    half = like.dtype in (torch.float16, torch.bfloat16)
    total = torch.zeros(like.shape, dtype=torch.float32 if half else like.dtype)
    for gradient in given:
        total += gradient
    mean: Tensor = (total / parts).to(dtype=like.dtype, device=like.device)
    return mean


def _placed(kept: Any, now: Any, device: Any) -> Any:
    """The tree with stored tensors copied into the current ones if they fit, else to a device."""
    if isinstance(kept, dict):
        pairs = {key: _placed(value, None, device) for key, value in kept.items()}
        return type(kept)(pairs)
    if isinstance(kept, list | tuple):
        return type(kept)(_placed(value, None, device) for value in kept)
    if not isinstance(kept, Stored):
        return kept
    if isinstance(now, torch_module().Tensor) and _form(now) == _form(kept.tensor):
        now.copy_(kept.tensor)
        return now
    return kept.tensor.to("cpu" if kept.on_cpu else device, copy=True)


def _form(tensor: Tensor) -> tuple[object, ...]:
    return (tuple(tensor.shape), tensor.dtype)


def _same(name: str, was: tuple[object, ...], now: tuple[object, ...]) -> None:
    if was != now:
        raise StateError(
            f"{name} is {now[1]} of shape {now[0]}, it was {was[1]} of shape {was[0]}: the shapes "
            "of a state in shards stay as they are"
        )


def _is_parameter(tensor: Tensor) -> bool:
    return isinstance(tensor, torch_module().nn.Parameter)


def _seed_of(seed: int, step: int, part: int) -> int:
    """A generator's seed; every member draws the same numbers for a part."""
    return ((seed * _SEED_PRIME + step) * _SEED_PRIME + part) % _MAX_SEED


def _shards(env: Mapping[str, str]) -> int:
    declared = env.get(ENV_SHARDS, "")
    if not (
        declared.isascii() and declared.isdigit() and len(declared) <= MAX_DIGITS and int(declared)
    ):
        raise ValueError(f"{ENV_SHARDS} is no number of shards: {declared!r}; or pass shards=")
    return int(declared)
