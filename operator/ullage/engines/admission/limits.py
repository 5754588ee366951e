# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The hard limits of a device, each declared once, for one device and for all devices at once.

:data:`LIMITS` lists them. The operator's search applies the same code to columns, the decision
about one device and the final check of the node agent to whole numbers. A limit gives the amount by
which a device falls short: a positive amount is a refusal, the smallest one is the closest miss,
and the order decides which reason is reported. Memory and contexts are physical limits and trust
domains are guarantees, so no forecast may override them.

It must never round in favour of a newcomer. The node agent checks single devices and has no numpy:
numpy is loaded with the first column.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Final, Generic, Protocol, TypeVar, get_type_hints

from ullage.api.devices import GPUMode, MpsState, ObservedDevice
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
"""Trust domain of a device with several or unknown trust domains: no newcomer joins it."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A figure that follows from what the node states of the device.

    Args:
        read: Gives the figure.
        passes: It is 0 when the device is well; what a node states for good stays.
    """

    read: Callable[[ObservedDevice], int]
    passes: bool = False


def _modes(device: ObservedDevice) -> int:
    return sum(MODE_BIT[mode] for mode in set(device.modes))


def _mps_is_away(device: ObservedDevice) -> bool:
    return device.mps is not None and device.mps.state is not MpsState.ACTIVE


@dataclass(frozen=True, slots=True)
class Facts(Generic[N]):
    """Figures of one device, or columns of all; memory in MiB.

    A figure that is :class:`Stated` needs no other place: columns, digests and the figures of
    empty devices follow from the declaration.
    """

    model: N
    health: N
    modes: Annotated[N, Stated(_modes)]
    memory: Annotated[N, Stated(attrgetter("memory_mib"))]
    overhead: N
    """Of one context."""
    contexts: N
    """Containers that may share it, without the contexts that an MPS server reserves or uses."""
    sharers: N
    contexts_used: N
    whole: N
    domain: N
    percent_used: N
    memory_used: N
    """Contexts included."""
    mps: Annotated[N, Stated(_mps_is_away, passes=True)]
    """Above 0 where an MPS server is required and missing."""
    loose: N
    unmeasured: N
    suspends: Annotated[N, Stated(attrgetter("suspends"))]
    """Above 0 where the node can suspend programs on the device."""
    least_percent: Annotated[N, Stated(attrgetter("least_percent"))]
    """Smallest share that the node can enforce."""
    alone: Annotated[N, Stated(attrgetter("alone"))]
    """Above 0 where a container can have no other device beside it."""


FIGURES: Final = tuple(field.name for field in fields(Facts))
"""Names of the figures, in order."""
STATED: Final[Mapping[str, Stated]] = {
    name: mark
    for name, hint in get_type_hints(Facts, include_extras=True).items()
    for mark in getattr(hint, "__metadata__", ())
}
"""The figures that nodes state, by name."""
EMPTY: Final[Facts[int]] = Facts(
    **{**dict.fromkeys(FIGURES, 0), "modes": ALL_MODES, "domain": NO_DOMAIN}
)
"""An empty device of size zero, as the base for the figures of a single device."""


class Request(Protocol):
    """A request to a device."""

    @property
    def mode(self) -> GPUMode:
        """The mode of the device."""
        ...

    @property
    def exclusive(self) -> bool:
        """True for a request for whole devices."""
        ...

    @property
    def lonely(self) -> bool:
        """True when no other tenant may be on the device."""
        ...

    @property
    def suspendable(self) -> bool:
        """True when the request relies on suspension while idle."""
        ...

    @property
    def count(self) -> int:
        """Devices of one container."""
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
        """Contexts that the tenant opens."""
        ...

    @property
    def domain(self) -> int:
        """The number of its trust domain."""
        ...

    @property
    def unmeasured(self) -> Collection[int]:
        """Models on which it must first be measured alone."""
        ...


def node_answers(facts: Facts[N], request: Request) -> N:
    """The node is ready and its agent reports."""
    return facts.health % NODE_LEAVES // NODE_UNHEALTHY


def node_stays(facts: Facts[N], request: Request) -> N:
    """The node is not being drained."""
    return facts.health // NODE_LEAVES


def device_is_healthy(facts: Facts[N], request: Request) -> N:
    """The device itself is healthy."""
    return facts.health % NODE_UNHEALTHY // DEVICE_UNHEALTHY


def mode_is_offered(facts: Facts[N], request: Request) -> N:
    """The device offers the mode."""
    return 1 - facts.modes // MODE_BIT[request.mode] % 2


def devices_combine(facts: Facts[N], request: Request) -> N:
    """A container may have the device beside others, where the request is for several."""
    return facts.alone if request.count > 1 else 0 * facts.alone


def share_is_enforceable(facts: Facts[N], request: Request) -> N:
    """The node can enforce the smallest share."""
    return facts.least_percent - request.min_percent


def programs_can_leave(facts: Facts[N], request: Request) -> N:
    """Programs on it can be suspended, where the request relies on that."""
    return 1 - smaller(facts.suspends, 1) if request.suspendable else 0 * facts.suspends


def device_is_free(facts: Facts[N], request: Request) -> N:
    """The device is empty for an exclusive request, and has no exclusive tenant for a share."""
    return facts.sharers if request.lonely else facts.whole


def trusts_the_others(facts: Facts[N], request: Request) -> N:
    """All tenants of the device are of the trust domain of the request."""
    return facts.sharers * (1 - _is_among(facts.domain, (request.domain,)))


def everyone_is_measured(facts: Facts[N], request: Request) -> N:
    """No tenant is being measured alone; a request that must be measured needs an empty device."""
    if not request.unmeasured:
        return facts.unmeasured
    return facts.unmeasured + facts.sharers * _is_among(facts.model, tuple(request.unmeasured))


def shares_are_served(facts: Facts[N], request: Request) -> N:
    """The MPS server of the device is ready."""
    return facts.mps


def everyone_is_held(facts: Facts[N], request: Request) -> N:
    """No tenant runs without verified limits, since it may take the whole device."""
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

    At least one MiB must be left beside the contexts: a share that is smaller than its own contexts
    falls short on every device.
    """
    asked = memory_needed(facts, request, request.min_percent)
    free = facts.memory - facts.memory_used
    return larger(asked - free, request.contexts * facts.overhead + 1 - asked)


class Names(Protocol):
    """Names for the text of a refusal by one device."""

    @property
    def tenants(self) -> str:
        """The tenants of the device with their shares; "" = it is empty."""
        ...

    @property
    def loose(self) -> str:
        """The tenants without verified limits."""
        ...

    @property
    def apart(self) -> str:
        """Reason why trust domains keep the request away."""
        ...

    @property
    def unmeasured(self) -> str:
        """What is measured alone, or has to be."""
        ...

    @property
    def server(self) -> str:
        """State of the MPS server."""
        ...

    @property
    def node(self) -> str:
        """Reason why the node accepts nothing new."""
        ...


class Short(Protocol):
    """The amount by which a device falls short of a request; positive = refused."""

    def __call__(self, facts: Facts[N], request: Request, /) -> N:
        """The amount for one device, or by device for all."""
        ...


@dataclass(frozen=True, slots=True)
class HardLimit:
    """A limit, the reason of its refusals, and their texts.

    Texts are templates with ``facts``, ``request``, ``names`` and what :func:`refusal_text` adds.

    Args:
        reason: The reason of a refusal.
        short: The amount by which a device falls short.
        text: About one device.
        never: About the best device where even empty ones fall short.
    """

    reason: Reason
    short: Short
    text: str
    never: str = "no suitable device could take it even when empty"


LIMITS: Final = (
    HardLimit(Reason.NODE_LEAVES, node_stays, "{names.node}"),
    HardLimit(Reason.NODE_UNHEALTHY, node_answers, "{names.node}"),
    HardLimit(Reason.DEVICE_UNHEALTHY, device_is_healthy, "the device is unhealthy"),
    HardLimit(
        Reason.MODE_UNSUPPORTED,
        mode_is_offered,
        "it does not offer {request.mode}",
        "no suitable device offers {request.mode}",
    ),
    HardLimit(
        Reason.DEVICES_NOT_COMBINED,
        devices_combine,
        "a container cannot have another device beside it",
        "a container can have one of the suitable devices, {request.count} are asked for",
    ),
    HardLimit(
        Reason.SHARE_TOO_SMALL,
        share_is_enforceable,
        "{request.min_percent} % is below its smallest share, {facts.least_percent} %",
        "{request.min_percent} % is below the smallest share of the suitable devices, "
        "{facts.least_percent} %",
    ),
    HardLimit(
        Reason.CHECKPOINT_UNAVAILABLE,
        programs_can_leave,
        "its node cannot suspend programs on it",
        "no node of a suitable device can suspend programs",
    ),
    HardLimit(Reason.NO_CAPACITY, device_is_free, "taken by {names.tenants}"),
    HardLimit(Reason.TRUST_DOMAIN, trusts_the_others, "{names.apart}"),
    HardLimit(Reason.NEED_PROFILE, everyone_is_measured, "{names.unmeasured}"),
    HardLimit(Reason.MPS_NOT_READY, shares_are_served, "its MPS server is {names.server}"),
    HardLimit(
        Reason.ENFORCEMENT_MISSING,
        everyone_is_held,
        "{names.loose} runs there without verified limits and may take the whole device",
    ),
    HardLimit(
        Reason.CONTEXT_LIMIT,
        contexts_are_left,
        "{facts.sharers} of {facts.contexts} places on it are taken",
    ),
    # before memory: without an explicit limit, memory follows the share and explains less
    HardLimit(
        Reason.PERCENT_LIMIT,
        percent_fits,
        "needs {request.min_percent} %, {free_percent} % are free{beside}",
        "the policy lets the shares on a device sum to {request.percent_limit} %",
    ),
    HardLimit(
        Reason.MEMORY_WOULD_OVERFLOW,
        memory_fits,
        "needs {needed_mib} MiB with its context, {free_mib} of {facts.memory} MiB are free"
        "{beside}",
        "{too_little}",
    ),
)
"""All limits in the order of evaluation."""
LIMIT_OF: Final[Mapping[Reason, HardLimit]] = {limit.reason: limit for limit in LIMITS}


def first_broken(facts: Facts[int], request: Request) -> HardLimit | None:
    """The first limit that a device breaks, if any."""
    return next((limit for limit in LIMITS if limit.short(facts, request) > 0), None)


def refusal_text(limit: HardLimit, facts: Facts[int], request: Request, names: Names) -> str:
    """The text of a limit that a device breaks."""
    beside = f" beside {names.tenants}" if names.tenants else ""
    return _filled(limit.text, facts, request, names=names, beside=beside)


def never_text(limit: HardLimit, facts: Facts[int], request: Request) -> str:
    """The text of a limit that even empty devices break; ``facts`` are of the best of them."""
    too_little = (
        f"even the largest suitable device has {facts.memory} MiB in all"
        if request.memory_mib
        else f"{request.min_percent} % of {facts.memory} MiB does not hold a context"
    )
    return _filled(limit.never, facts, request, too_little=too_little)


def _filled(template: str, facts: Facts[int], request: Request, **more: object) -> str:
    needed_mib = memory_needed(facts, request, request.min_percent)
    return template.format(
        facts=facts,
        request=request,
        free_percent=request.percent_limit - facts.percent_used,
        free_mib=facts.memory - facts.memory_used,
        needed_mib=max(needed_mib, request.contexts * facts.overhead + 1),
        **more,
    )


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
    """Memory of a tenant, its contexts included.

    Args:
        memory_mib: Memory that it may allocate, MiB.
        contexts: Its contexts.
        overhead_mib: Memory of one context on the device, MiB.
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
