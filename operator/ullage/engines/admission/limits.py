# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hard limits of a device, each declared once, for one device and for all devices at a time.

:data:`LIMITS` lists them. The operator's search applies it to columns, the decision about one
device and the final check of the node agent to whole numbers, by the same lines. A limit gives the
amount by which a device falls short: a positive amount is a refusal, the smallest one is the
closest miss, and the order decides which reason is reported. The text for people stands beside it.
Memory and contexts are physics and trust domains are promises, so no forecast may override them.

It must never round in favour of a newcomer. The node agent judges single devices and has no numpy:
it is loaded with the first column.
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
"""Trust domain of an empty device."""
MIXED: Final = -2
"""Trust domain of a device whose tenants differ or are not known: no newcomer joins them."""


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
"""An empty device of no size, as the base for the figures of a single device."""


class Request(Protocol):
    """A request to a device."""

    @property
    def mode(self) -> GPUMode:
        """The mode of the device."""
        ...

    @property
    def exclusive(self) -> bool:
        """True for whole devices."""
        ...

    @property
    def lonely(self) -> bool:
        """True when no other tenant may be on the device."""
        ...

    @property
    def suspendable(self) -> bool:
        """True when it relies on being suspended while idle."""
        ...

    @property
    def min_percent(self) -> int:
        """The smallest share."""
        ...

    @property
    def max_percent(self) -> int:
        """The largest share."""
        ...

    @property
    def percent_limit(self) -> int:
        """Largest sum of shares on a device."""
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
    """Its node is ready and its agent reports."""
    return facts.health % NODE_LEAVES // NODE_UNHEALTHY


def node_stays(facts: Facts[N], request: Request) -> N:
    """Its node is not being emptied."""
    return facts.health // NODE_LEAVES


def device_is_healthy(facts: Facts[N], request: Request) -> N:
    """Nothing is wrong with the device itself."""
    return facts.health % NODE_UNHEALTHY // DEVICE_UNHEALTHY


def mode_is_offered(facts: Facts[N], request: Request) -> N:
    """It offers the mode."""
    return 1 - facts.modes // MODE_BIT[request.mode] % 2


def programs_can_leave(facts: Facts[N], request: Request) -> N:
    """Programs on it can be suspended, where the request relies on that."""
    return 1 - smaller(facts.suspends, 1) if request.suspendable else 0 * facts.suspends


def device_is_free(facts: Facts[N], request: Request) -> N:
    """It is empty for a request without neighbours; no such tenant is on it for a share."""
    return facts.sharers if request.lonely else facts.whole


def trusts_the_others(facts: Facts[N], request: Request) -> N:
    """All tenants on it are of the same trust domain."""
    return facts.sharers * (1 - _is_among(facts.domain, (request.domain,)))


def everyone_is_measured(facts: Facts[N], request: Request) -> N:
    """No tenant on it is being measured alone; a request that must be measured needs it empty."""
    if not request.unmeasured:
        return facts.unmeasured
    return facts.unmeasured + facts.sharers * _is_among(facts.model, tuple(request.unmeasured))


def shares_are_served(facts: Facts[N], request: Request) -> N:
    """Its MPS server is ready."""
    return facts.mps


def everyone_is_held(facts: Facts[N], request: Request) -> N:
    """No tenant on it runs without verified limits: such a tenant may take the whole device."""
    return facts.loose


def contexts_are_left(facts: Facts[N], request: Request) -> N:
    """The contexts of the request fit."""
    return facts.contexts_used + request.contexts - facts.contexts


def percent_fits(facts: Facts[N], request: Request) -> N:
    """The smallest share keeps the sum within the limit; for a whole device the sum is 0."""
    if request.exclusive:
        return facts.percent_used
    return facts.percent_used + request.min_percent - request.percent_limit


def memory_fits(facts: Facts[N], request: Request) -> N:
    """The smallest memory of the request, contexts included, fits beside the others.

    It must hold at least one MiB beside the contexts: a share that is smaller than its own contexts
    falls short on every device.
    """
    asked = memory_needed(facts, request, request.min_percent)
    free = facts.memory - facts.memory_used
    return larger(asked - free, request.contexts * facts.overhead + 1 - asked)


class Short(Protocol):
    """The amount by which a device falls short of a request; positive = refused."""

    def __call__(self, facts: Facts[N], request: Request, /) -> N:
        """The amount for one device, or by device for all."""
        ...


class DeviceWords(Protocol):
    """Words for the texts about a device beside its figures: its node and its tenants."""

    @property
    def trouble(self) -> str:
        """The trouble of its node."""
        ...

    @property
    def tenants(self) -> str:
        """Its tenants, with their shares."""
        ...

    @property
    def beside(self) -> str:
        """Its tenants, to follow an amount; empty for an empty device."""
        ...

    @property
    def apart(self) -> str:
        """The reason why trust domains keep the newcomer from the tenants."""
        ...

    @property
    def unmeasured(self) -> str:
        """The tenant that is being measured alone, or the figures that the newcomer lacks."""
        ...

    @property
    def mps(self) -> str:
        """The state of its MPS server."""
        ...

    @property
    def loose(self) -> str:
        """Tenants without verified limits."""
        ...


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A device that breaks a limit, as input for the limit's text."""

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
    """A limit with its texts for people."""

    reason: Reason
    short: Short
    text: Callable[[Shortfall], str]
    """The obstacle on one device."""
    never: Callable[[Request, int], str] = lambda request, most_mib: (
        "no suitable device could take it even when empty"
    )
    """The obstacle even on empty devices, given the memory of the largest, MiB."""


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
"""All limits in the order of judging."""

LIMIT_OF: Final[Mapping[Reason, HardLimit]] = {limit.reason: limit for limit in LIMITS}


def first_broken(facts: Facts[int], request: Request) -> tuple[Reason, int] | None:
    """The first limit that one device breaks.

    Returns:
        The reason and the amount in the unit of the limit; ``None`` = none is broken.
    """
    for limit in LIMITS:
        short = limit.short(facts, request)
        if short > 0:
            return limit.reason, short
    return None


def ceiling(facts: Facts[N], request: Request) -> N:
    """Largest share that limits, memory and the request allow; may be below the least.

    Args:
        facts: Figures of one device (whole numbers), or columns of all, shape (devices,).
        request: The request.

    Returns:
        Percent by device.
    """
    top = request.percent_limit - facts.percent_used
    if not request.memory_mib:
        top = smaller(top, share_that_fits(facts.memory, facts.memory - facts.memory_used))
    return smaller(top, request.max_percent)


def memory_needed(facts: Facts[N], request: Request, percent: N | int) -> N:
    """Memory of a request at a share, its contexts included.

    Args:
        facts: Figures of one device (whole numbers), or columns of all, shape (devices,).
        request: The request.
        percent: The share, for all or by device.

    Returns:
        MiB by device.
    """
    if request.memory_mib:
        return with_contexts_mib(request.memory_mib, request.contexts, facts.overhead)
    return memory_of_share_mib(facts.memory, percent)


def memory_of_share_mib(device_mib: N, percent: N | int) -> N:
    """Memory in proportion to a share, its contexts included; rounded down.

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
        free_mib: Free memory, MiB.
    """
    return ((free_mib + 1) * WHOLE_PERCENT - 1) // larger(device_mib, 1)


def larger(first: N, second: N | int) -> N:
    """The larger of two numbers, or of two arrays of the same shape entry by entry."""
    if isinstance(first, int):
        return max(first, second)
    import numpy as np

    return np.maximum(first, second)


def smaller(first: N, second: N | int) -> N:
    """The smaller of two numbers, or of two arrays of the same shape entry by entry."""
    if isinstance(first, int):
        return min(first, second)
    import numpy as np

    return np.minimum(first, second)


def _is_among(value: N, numbers: tuple[int, ...]) -> N:
    if isinstance(value, int):
        return int(value in numbers)
    import numpy as np

    if len(numbers) == 1:  # nearly always; isin costs ten times as much on few devices
        return np.asarray(value == numbers[0], dtype=np.int64)
    return np.isin(value, numbers).astype(np.int64)
