# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""HOST:PORT means the same everywhere; a job begins with all, or with enough after a while."""

from __future__ import annotations

import pytest

from ullage.engines.tiers.flush import Link
from ullage.engines.tiers.records import TierSettings
from ullage_coordinator.maps import CoordinatorSettings
from ullage_coordinator.server import BAD_ARGUMENTS, main
from ullage_run.frames import address_of
from ullage_run.group import _steps

LINK = Link(
    state_bytes=10, dirty_bytes_per_step=10, host_bytes_per_s=1e6, state_store_bytes_per_s=1e6
)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("train-lead:7070", ("train-lead", 7070)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(text: str, found: tuple[str, int]) -> None:
    assert address_of(text, "ULLAGE_LEAD") == found


@pytest.mark.parametrize("text", ["", "host", ":80", "host:", "host:x", "host:70000", "host:-1"])
def test_what_is_none_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="ULLAGE_LEAD is not HOST:PORT"):
        address_of(text, "ULLAGE_LEAD")


def test_bad_addresses_end_the_lead_with_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    for option in ("--listen", "--keeper", "--status"):
        said = ["--members", "1", "--state-bytes", "10", option, "nowhere"]
        assert main(said) == BAD_ARGUMENTS
        assert f"{option} is not HOST:PORT" in capsys.readouterr().err


def test_fewer_members_do_after_a_while() -> None:
    terms = CoordinatorSettings(members=4, least=2, link=LINK, settings=TierSettings(), settle_s=60)
    assert terms.enough(4, 0)
    assert not terms.enough(3, 59)
    assert terms.enough(2, 60)
    assert not terms.enough(1, 600)
    assert not CoordinatorSettings(members=4, link=LINK, settings=TierSettings()).enough(3, 600)


def test_steps_of_the_copy_come_from_the_pod() -> None:
    env = {"ULLAGE_BACKUP_EVERY_STEPS": "3", "ULLAGE_BACKUP_MAX_LAG_STEPS": "6"}
    assert _steps(env) == {"every_steps": 3, "max_lag_steps": 6}
    assert _steps({}) == {}
    with pytest.raises(ValueError, match="ULLAGE_BACKUP_EVERY_STEPS"):
        _steps({"ULLAGE_BACKUP_EVERY_STEPS": "often"})
