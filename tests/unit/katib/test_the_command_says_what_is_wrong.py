# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""The command line, exit statuses and signals."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
import yaml

from fakes.katib_search import NAME, NAMESPACE, KatibRig, katib_rig
from fakes.katib_service import katib_service
from ullage.ports import TUNING_JOB
from ullage_katib.__main__ import FAILED, TERMINATED, UNUSABLE, main, parsed, suggest

PLAIN = [NAME, "--service", "127.0.0.1:6789", "--algorithm", "tpe", "-n", NAMESPACE]


def test_settings_and_bounds_are_taken() -> None:
    said = [*PLAIN, "--setting", "a=b=c", "--setting", "random_state=7", "--tries", "3"]
    found = parsed([*said, "--kubeconfig", "", "--deadline-seconds", "5", "--allow-repeats"])
    assert found.options.algorithm.settings == (("a", "b=c"), ("random_state", "7"))
    assert (found.options.namespace, found.options.name) == (NAMESPACE, NAME)
    assert (found.options.tries, found.deadline_s, found.options.allow_repeats) == (3, 5.0, True)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--service", "http://katib:6789"],
        ["--service", "katib"],
        ["--service", "unix:/run/containerd/containerd.sock:1"],
        ["--setting", "seed"],
        ["--setting", "=7"],
        ["--tries", "2"],
        ["--tries", "many"],
        ["--deadline-seconds", "nan"],
        ["--deadline-seconds", "0"],
        ["--look-seconds", "inf"],
    ],
)
def test_words_that_make_no_sense_end_with_usage(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parsed([*PLAIN, *wrong])
    assert caught.value.code == UNUSABLE
    assert wrong[0] in capsys.readouterr().err


def test_a_namespace_is_needed_in_a_pod(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*PLAIN[:-2], "--kubeconfig", ""]) == UNUSABLE
    assert "--namespace" in capsys.readouterr().err


async def test_a_pod_without_a_service_account_is_no_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert await suggest(parsed([*PLAIN, "--kubeconfig", ""])) == UNUSABLE
    assert "no service account" in capsys.readouterr().out


def kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "config"
    body = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": {"token": "token"}}],
        "contexts": [
            {"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": NAMESPACE}}
        ],
    }
    path.write_text(yaml.safe_dump(body))
    return path


async def ended(folder: Path, rig: KatibRig, service: str, *words: str) -> int:
    """Exit status of the command against a cluster whose trials end as they start."""

    async def live() -> None:
        while True:
            await asyncio.sleep(0.02)
            rig.end_trials()

    said = [NAME, "--service", service, "--look-seconds", "0.02", "--tries", "3", *words]
    living = asyncio.create_task(live())
    try:
        return await suggest(parsed([*said, "--kubeconfig", str(kubeconfig(folder, rig.api.url))]))
    finally:
        living.cancel()


async def test_it_ends_with_0_when_the_search_has_all_trials(tmp_path: Path) -> None:
    async with katib_rig() as rig, katib_service() as service:
        assert await ended(tmp_path, rig, service.address, "--algorithm", "random") == 0
        assert len(rig.suggestions) == 12


async def test_it_ends_with_2_where_no_other_start_helps(tmp_path: Path) -> None:
    async with katib_rig() as rig, katib_service() as service:
        assert await ended(tmp_path, rig, service.address, "--algorithm", "pbt") == UNUSABLE


async def test_it_ends_with_1_where_another_start_may_help(tmp_path: Path) -> None:
    async with katib_rig() as rig, katib_service() as service:
        rig.api.remove(TUNING_JOB, NAME, NAMESPACE)
        said = [NAME, "--service", service.address, "--algorithm", "random"]
        config = str(kubeconfig(tmp_path, rig.api.url))
        assert await suggest(parsed([*said, "--kubeconfig", config])) == FAILED


async def test_it_leaves_at_sigterm(tmp_path: Path) -> None:
    async with katib_rig() as rig, katib_service() as service:
        said = [NAME, "--service", service.address, "--algorithm", "random"]
        config = str(kubeconfig(tmp_path, rig.api.url))
        work = asyncio.create_task(suggest(parsed([*said, "--kubeconfig", config])))
        while not service.asked:
            await asyncio.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)
        assert await work == TERMINATED
        assert not rig.ended
