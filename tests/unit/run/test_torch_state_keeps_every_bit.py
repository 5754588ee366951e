# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Torch tensors as shards and back: every dtype and layout, and errors that name the tensor."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from ullage_run.orders import MemberAssignment
from ullage_run.torch_record import StateError, decode, encode
from ullage_run.torch_state import TorchState

torch = pytest.importorskip("torch", reason="torch is not installed: the adapter is not tried")
nn = torch.nn

SHARDS = 3
DTYPES = [
    *(torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.complex64),
    *(torch.complex128, torch.uint8, torch.int8, torch.int16, torch.int64, torch.bool),
    torch.float8_e4m3fn,
]


class Alone:
    """A group of one."""

    def __init__(self, blocks: int = 4, shards: int = SHARDS) -> None:
        self.epoch = 1
        self.assignment = MemberAssignment(
            shards=tuple(range(shards)),
            blocks=tuple(range(blocks)),
            block_count=blocks,
            members=("one",),
        )

    def gather(self, data: bytes | bytearray | memoryview) -> dict[str, bytes]:
        return {"one": bytes(data)}


def bits(tensor: Any) -> bytes:
    return bytes(tensor.detach().contiguous().view(-1).view(torch.uint8).tolist())


def there_and_back(tree: Any) -> Any:
    return decode(bytes(encode(tree)))


def sgd(module: Any) -> Any:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def trained(module: Any, optimizer: Any, steps: int = 3, **how: Any) -> TorchState:
    state = TorchState(module, optimizer, shards=SHARDS, parts=2, **how)
    for step in range(1, steps + 1):
        state.step(Alone(), step, lambda part: module(torch.ones(2, 4) * (part + 1)).square().sum())
    return state


def moved(old: TorchState, new: TorchState) -> None:
    for shard in range(SHARDS):
        new.take(shard, bytes(old.values(shard)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_comes_back_to_the_last_bit(dtype: Any) -> None:
    raw = torch.randint(0, 2, (48,), dtype=torch.uint8)
    raw = raw if dtype is torch.bool else torch.randint(0, 256, (48,), dtype=torch.uint8)
    given = raw.view(dtype)
    found = there_and_back({"one": given})["one"]
    assert found.on_cpu
    assert found.tensor.dtype == dtype
    assert bits(found.tensor) == bits(given)


@pytest.mark.parametrize(
    "given",
    [
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12.0)[::3],
        torch.arange(64.0).view(2, 2, 4, 4).to(memory_format=torch.channels_last),
        torch.tensor(3.5),
        torch.empty(0, 7),
        torch.arange(3).to(torch.complex64).conj(),
    ],
    ids=["transposed", "strided", "channels last", "scalar", "empty", "conjugate"],
)
def test_every_layout_comes_back(given: Any) -> None:
    found = there_and_back([given, torch.ones(3, dtype=torch.uint8), given])
    for at in (0, 2):
        assert found[at].tensor.shape == given.shape
        assert torch.equal(found[at].tensor, given)


def test_plain_values_keep_their_types() -> None:
    given = {"betas": (0.9, 0.999), "lr": 0.1 + 0.2, "fused": None, 3: [True, 1, "x"]}
    found = there_and_back(given)
    assert found == given
    assert type(found["betas"]) is tuple
    assert type(found[3][0]) is bool


@pytest.mark.parametrize("value", [object(), {1.5: 0}, {"x": {1}}, lambda: 0])
def test_what_is_no_plain_value_is_refused(value: object) -> None:
    with pytest.raises(StateError, match=r"state\.a"):
        encode({"a": value})


def record_of(header: object, rest: int = 64) -> bytes:
    said = json.dumps(header).encode()
    return len(said).to_bytes(8, "big") + said + bytes(rest)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff" * 40,
        bytes(8) + b"x" * 40,
        record_of([1]),
        record_of({"tuple": 3}),
        record_of({"eval": []}),
        record_of({"list": [], "tuple": []}),
        record_of({"tensor": ["float32", [1 << 60], True, 0]}),
        record_of({"tensor": ["float32", [-1], True, 0]}),
        record_of({"tensor": ["float32", [True], True, 0]}),
        record_of({"tensor": ["float32", [1], True, 7]}),
        record_of({"tensor": ["load", [1], True, 0]}),
        record_of({"tensor": [7, [1], True, 0]}),
        record_of({"tensor": ["float32", None, True, 0]}),
        record_of({"dict": [[[], 1]]}),
        (100_000).to_bytes(8, "big") + b'{"list":[' * 50_000,
    ],
    ids=lambda data: data[8:40].decode("ascii", "replace"),
)
def test_wild_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(StateError):
        decode(data)


def model() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))


MAKERS: dict[str, Callable[[Any], Any]] = {
    "adam": lambda m: torch.optim.Adam(m.parameters(), lr=0.01),
    "adam with a tensor as rate": lambda m: torch.optim.Adam(
        m.parameters(), lr=torch.tensor(0.01), foreach=False
    ),
    "adamw amsgrad, two groups": lambda m: torch.optim.AdamW(
        [{"params": m[0].parameters(), "lr": 0.1}, {"params": m[2].parameters()}], amsgrad=True
    ),
    "sgd nesterov": lambda m: torch.optim.SGD(m.parameters(), 0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda m: torch.optim.RMSprop(m.parameters(), centered=True, momentum=0.5),
    "adagrad": lambda m: torch.optim.Adagrad(m.parameters()),
    "nadam": lambda m: torch.optim.NAdam(m.parameters()),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_the_state_of_optimizers_moves_and_training_goes_on_alike(kind: str) -> None:
    here, there = model(), model()
    old = trained(here, first := MAKERS[kind](here))
    second = MAKERS[kind](there)
    new = TorchState(there, second, shards=SHARDS, parts=2)
    moved(old, new)
    assert by_key(first.state_dict()) == by_key(second.state_dict())
    assert by_key(here.state_dict()) == by_key(there.state_dict())

    def loss(of: Any) -> Callable[[int], Any]:
        return lambda part: of(torch.ones(2, 4) * (part + 3)).square().sum()

    for step in range(4, 7):
        assert old.step(Alone(), step, loss(here)) == new.step(Alone(), step, loss(there))
    assert by_key(first.state_dict()) == by_key(second.state_dict())


def by_key(state: Any) -> bytes:
    """A state dict as bytes, whatever the order in which it was filled."""

    def sorted_dicts(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: sorted_dicts(value[key]) for key in sorted(value, key=str)}
        return [sorted_dicts(one) for one in value] if isinstance(value, list) else value

    return bytes(encode(sorted_dicts(state)))


def test_back_before_the_first_step_the_optimizer_knows_nothing() -> None:
    here = model()
    optimizer = torch.optim.Adam(here.parameters())
    state = TorchState(here, optimizer, shards=SHARDS, parts=2)
    begun = [bytes(state.values(shard)) for shard in range(SHARDS)]
    state.step(Alone(), 1, lambda part: here(torch.ones(2, 4)).sum())
    assert optimizer.state_dict()["state"]
    for shard, data in enumerate(begun):
        state.take(shard, data)
    assert not optimizer.state_dict()["state"]


def test_moments_keep_a_wider_dtype_than_the_parameter() -> None:
    """``load_state_dict`` of torch casts them to the parameter's."""
    here, there = (nn.Linear(4, 2).to(torch.bfloat16) for _ in range(2))
    first, second = sgd(here), sgd(there)
    wide = torch.full((2, 4), 1 / 3)
    first.state[here.weight]["exp_avg"] = wide
    moved(*(TorchState(m, o, shards=SHARDS) for m, o in ((here, first), (there, second))))
    found = second.state[there.weight]["exp_avg"]
    assert found.dtype == torch.float32
    assert bits(found) == bits(wide)


def test_tied_parameters_count_once_and_stay_tied() -> None:
    def tied() -> Any:
        made = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
        made[1].weight = made[0].weight
        return made

    here, there = tied(), tied()
    old = trained(here, sgd(here))
    new = TorchState(there, sgd(there), shards=SHARDS)
    moved(old, new)
    assert there[1].weight is there[0].weight
    assert torch.equal(here[0].weight, there[0].weight)
    names = [name for shard in range(SHARDS) for name in tensors_of(old, shard)]
    assert sorted(names) == ["0.bias", "0.weight", "1.bias"]


def tensors_of(state: TorchState, shard: int) -> dict[str, Any]:
    found: dict[str, Any] = decode(state.values(shard))["tensors"]
    return found


def test_parts_of_one_memory_are_in_one_shard() -> None:
    flat = torch.arange(20.0)
    made = nn.Module()
    made.a, made.b = nn.Parameter(flat[:10]), nn.Parameter(flat[10:])
    made.c = nn.Parameter(torch.ones(5))
    state = TorchState(made, sgd(made), shards=SHARDS)
    sharing = [tensors_of(state, shard).keys() for shard in range(SHARDS)]
    assert {"a", "b"} in sharing
    assert {"c"} in sharing


def test_shards_are_even_and_the_same_for_all() -> None:
    sizes = (50, 49, 30, 30, 21, 20, 10, 9, 1)

    def made() -> TorchState:
        module = nn.ParameterList([nn.Parameter(torch.randn(size)) for size in sizes])
        return TorchState(module, sgd(module), shards=SHARDS)

    one, other = made(), made()
    loads = []
    for shard in range(SHARDS):
        assert tensors_of(one, shard).keys() == tensors_of(other, shard).keys()
        loads.append(sum(kept.tensor.numel() for kept in tensors_of(one, shard).values()))
    assert sum(loads) == sum(sizes)
    assert max(loads) - min(loads) <= 20


def test_a_step_that_breaks_off_changes_nothing() -> None:
    here = model()
    optimizer = torch.optim.Adam(here.parameters())
    state = trained(here, optimizer)
    before = [bytes(state.values(shard)) for shard in range(SHARDS)]

    class Gone(Alone):
        def gather(self, data: bytes | bytearray | memoryview) -> dict[str, bytes]:
            raise RuntimeError("someone is gone")

    with pytest.raises(RuntimeError, match="gone"):
        state.step(Gone(), 4, lambda part: here(torch.randn(2, 4)).sum())
    assert [bytes(state.values(shard)) for shard in range(SHARDS)] == before


def test_a_buffer_that_is_assigned_anew_is_the_state_too() -> None:
    class Mean(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))
            self.register_buffer("mean", torch.zeros(()))

        def forward(self, x: Any) -> Any:
            self.mean = self.mean + x.mean()
            return x * self.w

    here = Mean()
    state = trained(here, sgd(here), steps=3)
    assert here.mean.item() == 3.0, "part 0 alone decides, once a step"
    there = Mean()
    moved(state, TorchState(there, sgd(there), shards=SHARDS))
    assert there.mean.item() == 3.0


def test_a_parameter_without_gradient_is_left_alone() -> None:
    made = nn.ModuleDict({"used": nn.Linear(4, 1), "idle": nn.Linear(4, 1)})
    optimizer = torch.optim.AdamW(made.parameters(), weight_decay=0.5)
    before = made["idle"].weight.detach().clone()
    state = TorchState(made, optimizer, shards=SHARDS, parts=2)
    state.step(Alone(), 1, lambda part: made["used"](torch.ones(2, 4)).sum())
    assert torch.equal(made["idle"].weight, before)
    assert made["idle"].weight not in optimizer.state


def meta() -> Any:
    return nn.Linear(2, 2, device="meta")


def sparse() -> Any:
    made = nn.Linear(2, 2)
    made.register_buffer("graph", torch.eye(3).to_sparse())
    return made


def expanded() -> Any:
    made = nn.Linear(2, 2)
    made.register_buffer("mask", torch.zeros(1, 3).expand(4, 3))
    return made


def extra() -> Any:
    class Extra(nn.Linear):
        def get_extra_state(self) -> str:
            return "x"

    return Extra(2, 2)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (meta, "weight is on the meta device"),
        (sparse, "graph is sparse"),
        (expanded, "mask is expanded"),
        (lambda: nn.LazyLinear(3), "weight has no shape yet"),
        (extra, "_extra_state is extra state"),
    ],
)
def test_what_cannot_be_kept_is_named(made: Callable[[], Any], says: str) -> None:
    module = made()
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(StateError, match=says):
        TorchState(module, optimizer, shards=SHARDS)


def test_an_optimizer_of_another_module_is_refused() -> None:
    with pytest.raises(StateError, match="parameters that the module does not have"):
        TorchState(nn.Linear(2, 2), sgd(nn.Linear(2, 2)), shards=SHARDS)


def test_a_tensor_that_changes_its_shape_is_named() -> None:
    here = nn.Linear(4, 2)
    state = TorchState(here, sgd(here), shards=1)
    here.weight.data = torch.ones(3, 4)
    with pytest.raises(StateError, match=r"weight is torch.float32 of shape \(3, 4\), it was"):
        state.values(0)


def test_an_optimizer_slot_that_changes_its_shape_is_named() -> None:
    here = nn.Linear(4, 2)
    state = TorchState(here, optimizer := sgd(here), shards=1)
    optimizer.state[here.weight]["history"] = torch.ones(2)
    state.values(0)
    optimizer.state[here.weight]["history"] = torch.ones(3)
    with pytest.raises(StateError, match="history of weight is"):
        state.values(0)


def test_a_parameter_that_is_replaced_is_named() -> None:
    here = nn.Linear(4, 2)
    state = TorchState(here, sgd(here), shards=1)
    here.weight = nn.Parameter(torch.ones(2, 4))
    with pytest.raises(StateError, match="parameter weight is another one"):
        state.values(0)


def test_a_shard_of_another_model_changes_nothing() -> None:
    here, there = model(), nn.Sequential(nn.Linear(4, 9), nn.BatchNorm1d(9), nn.Linear(9, 2))
    old, new = (TorchState(m, sgd(m), shards=SHARDS) for m in (here, there))
    before = [bytes(new.values(shard)) for shard in range(SHARDS)]
    for shard, as_shard in itertools.product(range(SHARDS), repeat=2):
        with pytest.raises(StateError):
            new.take(as_shard, bytes(old.values(shard)))
    for wild in ({"shard": 0}, [], None, {"shard": 0, "shards": SHARDS, "tensors": 3}):
        with pytest.raises(StateError):
            new.take(0, bytes(encode(wild)))
    assert [bytes(new.values(shard)) for shard in range(SHARDS)] == before


def test_numbers_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    here = nn.Linear(4, 2)
    for said in ("", "0", "x", "9" * 30):
        monkeypatch.setenv("ULLAGE_SHARDS", said)
        with pytest.raises(ValueError, match="ULLAGE_SHARDS is no number of shards"):
            TorchState(here, sgd(here))
    monkeypatch.setenv("ULLAGE_SHARDS", "2")
    state = TorchState(here, sgd(here))
    with pytest.raises(StateError, match="shard 2 of 2"):
        state.take(2, None)
    with pytest.raises(ValueError, match="16 parts, but the data has 4 blocks"):
        state.step(Alone(shards=2), 1, lambda part: here(torch.ones(1, 4)).sum())


def test_it_cannot_begin_again_after_steps() -> None:
    here = nn.Linear(4, 2)
    state = TorchState(here, sgd(here), shards=SHARDS, parts=2)
    state.take(0, None)
    state.step(Alone(), 1, lambda part: here(torch.ones(1, 4)).sum())
    with pytest.raises(RuntimeError, match="steps were done since"):
        state.take(0, None)


def test_what_is_larger_than_a_gathering_goes_in_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ullage_run.torch_state._ROUND_BYTES", 100)
    here, there = model(), model()
    there.load_state_dict(here.state_dict())
    calls = []

    class Counted(Alone):
        def gather(self, data: bytes | bytearray | memoryview) -> dict[str, bytes]:
            calls.append(len(data))
            return super().gather(data)

    one = TorchState(here, sgd(here), shards=SHARDS, parts=2)
    one.step(Counted(), 1, lambda part: here(torch.ones(2, 4)).sum())
    assert len(calls) > 10
    assert max(calls) <= 108
    monkeypatch.undo()
    other = TorchState(there, sgd(there), shards=SHARDS, parts=2)
    other.step(Alone(), 1, lambda part: there(torch.ones(2, 4)).sum())
    assert [one.values(shard) for shard in range(SHARDS)] == [
        other.values(shard) for shard in range(SHARDS)
    ]
