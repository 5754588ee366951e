# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hard limits of a device, each once: for one device, and for all devices at a time.

:data:`LIMITS` is the one list of them. The operator's search goes through it with columns, the
decision about one device and the node agent's last word with whole numbers, by the same lines. A
limit says by how much a device falls short: a positive answer is a refusal, its size tells which
device misses by least, and the order decides which reason is told. Beside it stands what people
read of it. Memory and contexts are physics and trust domains are promises, so no forecast may
outvote them.

It must never round in favour of a newcomer. The node agent asks about single devices and has no
numpy: it is loaded with the first column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from ullage.api.devices import GPUMode
from ullage.api.reasons import Reason

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Ints = npt.NDArray[np.int64]

N = TypeVar("N", int, "Ints")

WHOLE_PERCENT: Final = 100

HEALTHY: Final = 0
DEVICE_UNHEALTHY: Final = 1
NODE_UNHEALTHY: Final = 2
NODE_LEAVES: Final = 4

MODE_BIT: Final[Mapping[GPUMode, int]] = {GPUMode.EXCLUSIVE: 1, GPUMode.FRACTIONAL: 2}
ALL_MODES: Final = sum(MODE_BIT.values())

NO_DOMAIN: Final = -1
"""Trust domain of a device that no one is on."""
MIXED: Final = -2
"""Trust domain of a device whose tenants differ or are not known: no one joins them."""


@dataclass(frozen=True, slots=True)
class Facts(Generic[N]):
    """Figures of one device, or columns of all; memory in MiB."""

    model: N
    health: N
    modes: N
    memory: N
    overhead: N
    """Of one context."""
    contexts: N
    sharers: N
    contexts_used: N
    whole: N
    domain: N
    percent_used: N
    memory_used: N
    """Contexts included."""
    mps: N
    """Above 0 where an MPS server should serve shares and does not."""
    loose: N
    unmeasured: N
    suspends: N
    """Above 0 where its node can suspend programs on it."""


EMPTY: Final[Facts[int]] = Facts(
    model=0,
    health=HEALTHY,
    modes=ALL_MODES,
    memory=0,
    overhead=0,
    contexts=0,
    sharers=0,
    contexts_used=0,
    whole=0,
    domain=NO_DOMAIN,
    percent_used=0,
    memory_used=0,
    mps=0,
    loose=0,
    unmeasured=0,
    suspends=0,
)
"""A device of no size that no one is on: what is said of a single device replaces its figures."""


class Request(Protocol):
    """What is asked of a device."""

    @property
    def mode(self) -> GPUMode:
        """How it is given."""
        ...

    @property
    def exclusive(self) -> bool:
        """Whether whole devices are asked for."""
        ...

    @property
    def lonely(self) -> bool:
        """Whether no one else may be on the device."""
        ...

    @property
    def suspendable(self) -> bool:
        """Whether its memory counts on being suspended while it does nothing."""
        ...

    @property
    def min_percent(self) -> int:
        """The least share."""
        ...

    @property
    def max_percent(self) -> int:
        """The largest share."""
        ...

    @property
    def percent_limit(self) -> int:
        """Most that the shares on a device may sum to."""
        ...

    @property
    def memory_mib(self) -> int:
        """Memory beside its contexts; 0 = in proportion to the share, contexts included."""
        ...

    @property
    def contexts(self) -> int:
        """Contexts that it opens."""
        ...

    @property
    def domain(self) -> int:
        """The number of its trust domain."""
        ...

    @property
    def unmeasured(self) -> Collection[int]:
        """Models on which it must be measured alone first."""
        ...


def node_answers(facts: Facts[N], request: Request) -> N:
    """Its node is ready and its agent is heard."""
    return facts.health % NODE_LEAVES // NODE_UNHEALTHY


def node_stays(facts: Facts[N], request: Request) -> N:
    """Its node is not being emptied."""
    return facts.health // NODE_LEAVES


def device_is_healthy(facts: Facts[N], request: Request) -> N:
    """Nothing is wrong with the device itself."""
    return facts.health % NODE_UNHEALTHY // DEVICE_UNHEALTHY


def mode_is_offered(facts: Facts[N], request: Request) -> N:
    """It can be given in this way."""
    return 1 - facts.modes // MODE_BIT[request.mode] % 2


def programs_can_leave(facts: Facts[N], request: Request) -> N:
    """Programs on it can be suspended, where the request counts on that."""
    return 1 - smaller(facts.suspends, 1) if request.suspendable else 0 * facts.suspends


def device_is_free(facts: Facts[N], request: Request) -> N:
    """Whole devices are empty before; a share joins no whole one."""
    return facts.sharers if request.lonely else facts.whole


def trusts_the_others(facts: Facts[N], request: Request) -> N:
    """Everyone on it is of the same trust domain."""
    return facts.sharers * (1 - _is_among(facts.domain, (request.domain,)))


def everyone_is_measured(facts: Facts[N], request: Request) -> N:
    """No one on it is being measured alone; who must be measured first joins no one."""
    if not request.unmeasured:
        return facts.unmeasured
    return facts.unmeasured + facts.sharers * _is_among(facts.model, tuple(request.unmeasured))


def shares_are_served(facts: Facts[N], request: Request) -> N:
    """What enforces shares there answers."""
    return facts.mps


def everyone_is_held(facts: Facts[N], request: Request) -> N:
    """No one on it runs without verified limits: such a tenant may take the whole device."""
    return facts.loose


def contexts_are_left(facts: Facts[N], request: Request) -> N:
    """The contexts of one more fit."""
    return facts.contexts_used + request.contexts - facts.contexts


def percent_fits(facts: Facts[N], request: Request) -> N:
    """The least share keeps the sum on the device within the limit; a whole one is empty."""
    if request.exclusive:
        return facts.percent_used
    return facts.percent_used + request.min_percent - request.percent_limit


def memory_fits(facts: Facts[N], request: Request) -> N:
    """The least memory that is asked for, contexts included, fits beside the others.

    It must hold at least one MiB beside the contexts: a share that is smaller than its own contexts
    falls short on any device.
    """
    asked = memory_needed(facts, request, request.min_percent)
    free = facts.memory - facts.memory_used
    return larger(asked - free, request.contexts * facts.overhead + 1 - asked)


class Short(Protocol):
    """By how much a device falls short of a request; positive = refused."""

    def __call__(self, facts: Facts[N], request: Request, /) -> N:
        """Answer for one device, or for all at once."""
        ...


class DeviceWords(Protocol):
    """Words for a device beside its figures: its node and those who are on it, for people."""

    @property
    def trouble(self) -> str:
        """The trouble of its node."""
        ...

    @property
    def tenants(self) -> str:
        """Those who are on it, with their shares."""
        ...

    @property
    def beside(self) -> str:
        """The same, as it follows an amount; nothing where no one is on it."""
        ...

    @property
    def apart(self) -> str:
        """The reason for which the newcomer may not share with those who are on it."""
        ...

    @property
    def unmeasured(self) -> str:
        """The one that is measured alone there, or that the newcomer must be."""
        ...

    @property
    def mps(self) -> str:
        """The state of its MPS server."""
        ...

    @property
    def loose(self) -> str:
        """Those who run there without verified limits."""
        ...


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A device that does not keep a limit, as the text of the limit sees it."""

    facts: Facts[int]
    request: Request
    words: DeviceWords


def _memory_text(at: Shortfall) -> str:
    asked = memory_needed(at.facts, at.request, at.request.min_percent)
    free = at.facts.memory - at.facts.memory_used
    return (
        f"needs {larger(asked, at.facts.overhead + 1)} MiB with its context, {free} of "
        f"{at.facts.memory} MiB are free{at.words.beside}"
    )


def _memory_never(request: Request, most_mib: int) -> str:
    if request.memory_mib:
        return f"even the largest suitable device has {most_mib} MiB in all"
    return f"{request.min_percent} % of {most_mib} MiB does not hold a context"


@dataclass(frozen=True, slots=True)
class HardLimit:
    """A thing that a device must leave free or prove, with the text for people."""

    reason: Reason
    short: Short
    text: Callable[[Shortfall], str]
    """What stands in the way on one device."""
    never: Callable[[Request, int], str] = lambda request, most_mib: (
        "no suitable device could take it even when empty"
    )
    """What stands in the way even on empty devices, the largest of which has so many MiB."""


LIMITS: Final = (
    HardLimit(Reason.NODE_LEAVES, node_stays, lambda at: at.words.trouble),
    HardLimit(Reason.NODE_UNHEALTHY, node_answers, lambda at: at.words.trouble),
    HardLimit(Reason.DEVICE_UNHEALTHY, device_is_healthy, lambda at: "the device is unhealthy"),
    HardLimit(
        Reason.MODE_UNSUPPORTED,
        mode_is_offered,
        lambda at: f"it does not offer {at.request.mode}",
        lambda request, most_mib: f"no suitable device offers {request.mode}",
    ),
    HardLimit(
        Reason.CHECKPOINT_UNAVAILABLE,
        programs_can_leave,
        lambda at: "its node cannot suspend programs on it",
        lambda request, most_mib: "no node of a suitable device can suspend programs",
    ),
    HardLimit(Reason.NO_CAPACITY, device_is_free, lambda at: f"taken by {at.words.tenants}"),
    HardLimit(Reason.TRUST_DOMAIN, trusts_the_others, lambda at: at.words.apart),
    HardLimit(Reason.NEED_PROFILE, everyone_is_measured, lambda at: at.words.unmeasured),
    HardLimit(
        Reason.MPS_NOT_READY, shares_are_served, lambda at: f"its MPS server is {at.words.mps}"
    ),
    HardLimit(
        Reason.ENFORCEMENT_MISSING,
        everyone_is_held,
        lambda at: (
            f"{at.words.loose} runs there without verified limits and may take the whole device"
        ),
    ),
    HardLimit(
        Reason.CONTEXT_LIMIT,
        contexts_are_left,
        lambda at: f"{at.facts.sharers} of {at.facts.contexts} places on it are taken",
    ),
    # before memory: without a limit of its own, memory follows the share and says less
    HardLimit(
        Reason.PERCENT_LIMIT,
        percent_fits,
        lambda at: (
            f"needs {at.request.min_percent} %, "
            f"{at.request.percent_limit - at.facts.percent_used} % are free{at.words.beside}"
        ),
        lambda request, most_mib: (
            f"the policy lets the shares on a device sum to {request.percent_limit} %"
        ),
    ),
    HardLimit(Reason.MEMORY_WOULD_OVERFLOW, memory_fits, _memory_text, _memory_never),
)
"""All of them, in the order of asking."""

LIMIT_OF: Final[Mapping[Reason, HardLimit]] = {limit.reason: limit for limit in LIMITS}


def first_broken(facts: Facts[int], request: Request) -> tuple[Reason, int] | None:
    """The first limit that one device does not keep.

    Args:
        facts: Figures of the device.
        request: What is asked of it.

    Returns:
        The reason and by how much, in the unit of the limit; ``None`` = it keeps all.
    """
    for limit in LIMITS:
        short = limit.short(facts, request)
        if short > 0:
            return limit.reason, short
    return None


def ceiling(facts: Facts[N], request: Request) -> N:
    """Largest share that limits, memory and the request leave; may be below the least.

    Args:
        facts: Figures of one device (whole numbers), or columns of all, shape (devices,).
        request: What is asked of it.

    Returns:
        Percent of each device.
    """
    top = request.percent_limit - facts.percent_used
    if not request.memory_mib:
        top = smaller(top, share_that_fits(facts.memory, facts.memory - facts.memory_used))
    return smaller(top, request.max_percent)


def memory_needed(facts: Facts[N], request: Request, percent: N | int) -> N:
    """Memory that a request takes at a share, its contexts included.

    Args:
        facts: Figures of one device (whole numbers), or columns of all, shape (devices,).
        request: What is asked of it.
        percent: The share, one for all or one for each device.

    Returns:
        MiB on each device.
    """
    if request.memory_mib:
        return with_contexts_mib(request.memory_mib, request.contexts, facts.overhead)
    return memory_of_share_mib(facts.memory, percent)


def memory_of_share_mib(device_mib: N, percent: N | int) -> N:
    """Memory that goes with a share, its contexts included; rounded down.

    Args:
        device_mib: Memory of the device, MiB.
        percent: The share, percent of the device.
    """
    return device_mib * percent // WHOLE_PERCENT


def with_contexts_mib(memory_mib: int, contexts: int, overhead_mib: N) -> N:
    """Memory that a tenant takes which may allocate so much beside its contexts.

    Args:
        memory_mib: What it may allocate, MiB.
        contexts: Its contexts.
        overhead_mib: What one context costs on the device, MiB.
    """
    return memory_mib + contexts * overhead_mib


def share_that_fits(device_mib: N, free_mib: N) -> N:
    """Largest p with floor(device * p / 100) <= free, in percent; not bounded by 100 (derived).

    Args:
        device_mib: Memory of the device, MiB.
        free_mib: What is free of it, MiB.
    """
    return ((free_mib + 1) * WHOLE_PERCENT - 1) // larger(device_mib, 1)


def larger(one: N, other: N | int) -> N:
    """The larger of two, entry by entry.

    Args:
        one: A whole number or an array.
        other: A number, or an array of the same shape.
    """
    if isinstance(one, int):
        return max(one, other)
    import numpy as np

    return np.maximum(one, other)


def smaller(one: N, other: N | int) -> N:
    """The smaller of two, entry by entry.

    Args:
        one: A whole number or an array.
        other: A number, or an array of the same shape.
    """
    if isinstance(one, int):
        return min(one, other)
    import numpy as np

    return np.minimum(one, other)


def _is_among(one: N, numbers: tuple[int, ...]) -> N:
    if isinstance(one, int):
        return int(one in numbers)
    import numpy as np

    if len(numbers) == 1:  # nearly always; isin costs ten times as much on few devices
        return np.asarray(one == numbers[0], dtype=np.int64)
    return np.isin(one, numbers).astype(np.int64)
