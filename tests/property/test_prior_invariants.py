# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The analytic prior: alone costs nothing, company never helps, more of it never costs less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.engines.admission.prior import Side, base, contention, side_of
from ullage.engines.admission.records import ClassProfile, Fingerprint, Rung, ShareCurve

PART = st.floats(0.0, 1.0)


@st.composite
def sides(draw: st.DrawFn) -> Side:
    return Side(
        share=draw(st.floats(0.05, 1.0)),
        fingerprint=Fingerprint(
            sm=draw(PART), dram=draw(PART), tensor=draw(PART), kernel_idle=draw(PART)
        ),
        curve=ShareCurve(fixed_s=draw(PART), scaled_s=draw(st.floats(0.01, 1.0))),
    )


@given(sides())
def test_alone_costs_nothing(one: Side) -> None:
    assert contention([one]) == (1.0,)


@settings(max_examples=200)
@given(st.lists(sides(), min_size=2, max_size=5), st.floats(0.5, 1.0))
def test_company_never_helps(many: list[Side], clocks: float) -> None:
    factors = contention(many, clocks)
    assert factors is not None
    assert all(one >= 1 - 1e-9 for one in factors)


@settings(max_examples=200)
@given(sides(), sides(), st.sampled_from(["sm", "dram", "share"]), PART)
def test_more_of_a_neighbour_never_costs_less(
    own: Side, other: Side, what: str, more: float
) -> None:
    assert other.fingerprint is not None
    if what == "share":
        grown = replace(other, share=max(other.share, more, 0.05))
    else:
        value = max(getattr(other.fingerprint, what), more)
        grown = replace(other, fingerprint=replace(other.fingerprint, **{what: value}))
    before, after = contention([own, other]), contention([own, grown])
    assert before is not None
    assert after is not None
    assert after[0] >= before[0] - 1e-9


@given(sides(), st.sampled_from(["sm", "dram", "tensor"]))
def test_what_was_not_measured_is_not_guessed(own: Side, missing: str) -> None:
    assert own.fingerprint is not None
    gap = replace(own, fingerprint=replace(own.fingerprint, **{missing: None}))
    assert contention([own, gap]) is None
    assert base([own, gap])[1] is Rung.UTILISATION_SUM


@pytest.mark.parametrize("value", [-0.1, float("nan"), float("inf")])
def test_a_counter_that_is_no_number_is_refused_by_name(value: float) -> None:
    spoilt = ClassProfile(workload_class="resnet", fingerprint=Fingerprint(dram=value))
    with pytest.raises(ValueError, match="class resnet: dram"):
        side_of(spoilt, 50)


def test_a_tenant_held_back_by_its_own_share_takes_less_bandwidth_from_others() -> None:
    curve = ShareCurve(fixed_s=0.0, scaled_s=1.0)
    # so little compute that only bandwidth can be short
    fingerprint = Fingerprint(sm=0.01, dram=0.8, tensor=0.1, kernel_idle=0.0)
    other = Side(share=1.0, fingerprint=fingerprint, curve=curve)
    whole, most, part = (
        contention([Side(share=share, fingerprint=fingerprint, curve=curve), other])
        for share in (1.0, 0.6, 0.3)
    )
    assert whole is not None
    assert most is not None
    assert part is not None
    assert part[1] < most[1] < whole[1]
