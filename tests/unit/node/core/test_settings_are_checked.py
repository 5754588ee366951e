# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from ullage.process.environment import LogLevel, SettingsError
from ullage_node.devices.backend import Hardware
from ullage_node.main import run
from ullage_node.settings import NoticeProvider, load_settings

NAME = {"ULLAGE_NODE_NAME": "node-a"}


def test_defaults_are_those_of_a_node() -> None:
    settings = load_settings(NAME)
    assert settings.backend is Hardware.NVIDIA
    assert settings.paths.device_plugin_dir == Path("/var/lib/kubelet/device-plugins")
    assert settings.paths.checkpoint == Path("/var/lib/ullage/node/state.json")
    assert settings.paths.steps_dir == Path("/run/ullage/steps")
    assert settings.periods.heartbeat_seconds == 60
    assert settings.http.port == 8081


def test_every_field_is_one_variable() -> None:
    settings = load_settings(
        {
            **NAME,
            "ULLAGE_NODE_BACKEND": "emulated",
            "ULLAGE_NODE_MAX_SHARERS": "4",
            "ULLAGE_NODE_LATE_BINDING": "false",
            "ULLAGE_NODE_LOG_LEVEL": "debug",
            "ULLAGE_NODE_PATHS_CDI_DIR": "/run/cdi",
            "ULLAGE_NODE_PERIODS_PROBE_SECONDS": "2.5",
            "ULLAGE_NODE_HTTP_PORT": "9999",
            "ULLAGE_NODE_API_SERVER": "https://127.0.0.1:6443",
            "ULLAGE_NODE_NOTICES_PROVIDER": "EC2",
            "ULLAGE_NODE_NOTICES_URL": "http://[fd00:ec2::254]:80/",
            "PATH": "/usr/bin",
        }
    )
    assert settings.backend is Hardware.EMULATED
    assert (settings.max_sharers, settings.late_binding) == (4, False)
    assert settings.log_level is LogLevel.DEBUG
    assert settings.paths.cdi_dir == Path("/run/cdi")
    assert settings.periods.probe_seconds == 2.5
    assert (settings.http.port, settings.api.server) == (9999, "https://127.0.0.1:6443")
    assert settings.notices.provider is NoticeProvider.EC2
    assert settings.notices.url == "http://[fd00:ec2::254]:80/"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ULLAGE_NODE_BAKEND", "nvidia", "did you mean ULLAGE_NODE_BACKEND"),
        ("ULLAGE_NODE_XYZ_QQ", "1", "ULLAGE_NODE_XYZ_QQ is unknown"),
        ("ULLAGE_NODE_HTP_PORT", "1", "did you mean ULLAGE_NODE_HTTP_PORT"),
        ("ULLAGE_NODE_BACKEND", "amd", "expected one of nvidia, emulated"),
        ("ULLAGE_NODE_MAX_SHARERS", "many", "expected a whole number"),
        ("ULLAGE_NODE_MAX_SHARERS", "0", "at least one container"),
        ("ULLAGE_NODE_LATE_BINDING", "maybe", "expected true or false"),
        ("ULLAGE_NODE_PATHS_CDI_DIR", "run/cdi", "expected an absolute path"),
        ("ULLAGE_NODE_NOTICES_PROVIDER", "AWS", "expected one of None, EC2, GCE, Azure, Taints"),
        ("ULLAGE_NODE_NOTICES_URL", "https://169.254.169.254", "expected http://host"),
        ("ULLAGE_NODE_NOTICES_URL", "http://host/latest", "expected http://host"),
        ("ULLAGE_NODE_NOTICES_URL", "http://user@host", "expected http://host"),
        ("ULLAGE_NODE_PERIODS_PROBE_SECONDS", "-1", "expected seconds"),
        ("ULLAGE_NODE_PERIODS_PROBE_SECONDS", "soon", "could not convert"),
        ("ULLAGE_NODE_PERIODS_USAGE_WINDOW_SECONDS", "9", "10 seconds or more"),
        ("ULLAGE_NODE_PERIODS_USAGE_WINDOW_SECONDS", "nan", "expected seconds"),
        ("ULLAGE_NODE_NAME", "", "is empty"),
    ],
)
def test_a_wrong_setting_is_named(variable: str, value: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({**NAME, variable: value})
    assert variable in str(caught.value)
    assert words in str(caught.value)


def test_all_problems_are_said_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load_settings({"ULLAGE_NODE_BACKEND": "amd", "ULLAGE_NODE_WHAT": "x"})
    for name in ("ULLAGE_NODE_NAME", "ULLAGE_NODE_BACKEND", "ULLAGE_NODE_WHAT"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ULLAGE_NODE_SERVICE_HOST", "10.0.0.1"),
        ("ULLAGE_NODE_SERVICE_PORT_HTTP", "8081"),
        ("ULLAGE_NODE_PORT", "tcp://10.0.0.1:8081"),
        ("ULLAGE_NODE_PORT_8081_TCP_ADDR", "10.0.0.1"),
    ],
)
def test_what_kubelet_injects_for_a_service_is_no_setting(variable: str, value: str) -> None:
    assert load_settings({**NAME, variable: value}).name == "node-a"


def test_a_wrong_setting_ends_the_process_with_one_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ULLAGE_NODE_NAME", "node-a")
    monkeypatch.setenv("ULLAGE_NODE_BACKEND", "amd")
    with pytest.raises(SystemExit) as caught:
        run([])
    assert str(caught.value).startswith("ullage-node: ULLAGE_NODE_BACKEND='amd'")


def test_the_version_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        run(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("ullage-node 0.")
