# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Two questions that differ anywhere have different hashes; the same question has the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace

from fakes.admission import CrowdForecaster, certified, device, newcomer, resident, tenant
from ullage.engines.admission.calibration import Threshold
from ullage.engines.admission.filters import Device, Newcomer, proposal_for
from ullage.engines.admission.inputs import inputs_hash, proposal_hash
from ullage.engines.admission.records import (
    ClassProfile,
    Fingerprint,
    Proposal,
    ShareCurve,
    Tenant,
)
from ullage.engines.admission.verdict import Arrival, Basis, RiskSettings

Question = tuple[Device, Newcomer, Basis]


def _tenant(name: str) -> Tenant:
    curve = ShareCurve(fixed_s=0.1, scaled_s=0.2)
    return replace(tenant(name), profile=ClassProfile(workload_class=name, curve=curve))


def _question() -> Question:
    basis = Basis(
        forecaster=CrowdForecaster(),
        thresholds=certified(),
        arrivals=(Arrival(newcomer=newcomer(_tenant("usual")), weight=0.5),),
    )
    return device(resident(_tenant("a"))), newcomer(_tenant("b")), basis


def _other(value: object) -> object:
    """A value that is not this one."""
    match value:
        case str():
            return f"{value}+"
        case bool():
            return not value
        case int() | float():
            return value + 1
        case tuple() if value and is_dataclass(value[0]):
            return value * 2
        case tuple():
            return (*value, 7)
        case None:
            return 3
        case _:
            raise AssertionError(f"no other value of {value!r} is known")


def _variants(record: object, path: str) -> Iterator[tuple[str, object]]:
    """The same record with one field changed, for every field at any depth."""
    assert is_dataclass(record)
    assert not isinstance(record, type)
    for one in fields(record):
        value, where = getattr(record, one.name), f"{path}.{one.name}"
        if one.name == "forecaster":
            continue  # the model has a version of its own in the verdict
        if isinstance(value, Mapping):
            first = next(iter(value))
            for name, changed in _variants(value[first], f"{where}[0]"):
                yield name, replace(record, **{one.name: {**value, first: changed}})
            yield (
                f"{where} without one",
                replace(
                    record, **{one.name: {key: held for key, held in value.items() if key != first}}
                ),
            )
            continue
        inner = value[0] if isinstance(value, tuple) and value else value
        if is_dataclass(inner):
            for name, changed in _variants(inner, where):
                whole = (changed,) if isinstance(value, tuple) else changed
                yield name, replace(record, **{one.name: whole})
        if not is_dataclass(value):
            yield where, replace(record, **{one.name: _other(value)})


def _questions() -> dict[str, Question]:
    here, who, basis = _question()
    found: dict[str, Question] = {"as it is": (here, who, basis)}
    for name, changed in _variants(here, "device"):
        assert isinstance(changed, Device)
        found[name] = (changed, who, basis)
    for name, changed in _variants(who, "newcomer"):
        assert isinstance(changed, Newcomer)
        found[name] = (here, changed, basis)
    for name, changed in _variants(basis, "basis"):
        assert isinstance(changed, Basis)
        found[name] = (here, who, changed)
    return found


def test_whatever_changes_changes_the_hash() -> None:
    questions = _questions()
    named = {name.rpartition(".")[2] for name in questions}
    for kind in (Device, Newcomer, Tenant, ClassProfile, Fingerprint, ShareCurve, RiskSettings):
        leaves = {one.name for one in fields(kind)}
        assert leaves - named <= {"tenant", "profile", "fingerprint", "curve"}
    assert {one.name for one in fields(Threshold)} <= named
    seen: dict[str, str] = {}
    for name, question in questions.items():
        same = seen.setdefault(inputs_hash(*question), name)
        assert same == name, f"{name} and {same} look alike"


def test_whatever_changes_a_proposal_changes_its_hash() -> None:
    here, who, basis = _question()
    proposal = proposal_for(who, here)
    seen = {proposal_hash(proposal, basis): "as it is"}
    for name, changed in _variants(proposal, "proposal"):
        assert isinstance(changed, Proposal)
        same = seen.setdefault(proposal_hash(changed, basis), name)
        assert same == name, f"{name} and {same} look alike"
    assert proposal_hash(proposal, replace(basis, settings=RiskSettings(eps_percent=1))) not in seen


def test_the_same_question_made_again_has_the_same_hash() -> None:
    assert inputs_hash(*_question()) == inputs_hash(*_question())


def test_thresholds_count_in_any_order() -> None:
    here, who, basis = _question()
    turned = replace(basis, thresholds=dict(list(basis.thresholds.items())[::-1]))
    assert inputs_hash(here, who, turned) == inputs_hash(here, who, basis)


def test_what_is_not_there_is_told_from_what_is() -> None:
    here, who, basis = _question()
    bare = replace(who, tenant=replace(who.tenant, profile=None))
    assert inputs_hash(here, bare, basis) != inputs_hash(here, who, basis)
