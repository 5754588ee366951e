# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Settings come from the environment; nothing unknown or unreadable is accepted silently."""

import pytest

from ullage.app.settings import PREFIX, Settings, settings_from
from ullage.process.environment import SettingsError, variables


def test_an_empty_environment_gives_the_defaults() -> None:
    assert settings_from({"PATH": "/bin"}) == Settings()


def test_values_reach_their_section() -> None:
    settings = settings_from({"ULLAGE_WRITE_PER_SECOND": "1000", "ULLAGE_LEASE_NAMESPACE": "gpu"})
    assert settings.write.per_second == 1000.0
    assert settings.lease.namespace == "gpu"


def test_an_unknown_variable_is_named() -> None:
    with pytest.raises(SettingsError, match="ULLAGE_WRITE_PER_SECONDS"):
        settings_from({"ULLAGE_WRITE_PER_SECONDS": "1000"})


def test_an_unreadable_value_is_named() -> None:
    with pytest.raises(SettingsError, match="ULLAGE_HTTP_PORT='eighty'"):
        settings_from({"ULLAGE_HTTP_PORT": "eighty"})


@pytest.mark.parametrize(
    "environment",
    [
        {"ULLAGE_LEASE_RENEW_DEADLINE_SECONDS": "30"},
        {"ULLAGE_WRITE_IN_FLIGHT": "0"},
        {"ULLAGE_LOG_LEVEL": "loud"},
    ],
)
def test_values_that_cannot_work_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError):
        settings_from(environment)


def test_every_field_has_a_variable() -> None:
    names = {variable.name for variable in variables(Settings, PREFIX)}
    assert {"ULLAGE_KUBECONFIG", "ULLAGE_DECIDE_DEADLINE_SECONDS"} <= names
