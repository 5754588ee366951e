# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that a page shows is one that its program takes, with its options and names."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.packaging.repository import ROOT
from unit.packaging.shown import PAGES, Block, blocks, commands, commands_of, sentences
from unit.packaging.shown_programs import ELSEWHERE, faults

LANGUAGES = frozenset({"sh", "console", "text", "yaml", "python", "diff", "mermaid", "dockerfile"})


def _id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the files are that commands name."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_block_has_its_language(page: Path) -> None:
    assert [block.place for block in blocks(page) if block.language not in LANGUAGES] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_commands_of_a_page_exist(page: Path, folder: Path) -> None:
    wrong = [
        f"{block.place}: {' '.join(words)}: {fault}"
        for block in blocks(page)
        if block.language in ("sh", "console")
        for words in commands(block)
        for fault in faults(words, whole=True, folder=folder)
    ]
    wrong += [
        f"{_id(page)}: {' '.join(words)}: {fault}"
        for words in sentences(page)
        for fault in faults(words, whole=False, folder=folder)
    ]
    assert wrong == []


def test_the_pages_show_commands_of_each_program() -> None:
    shown = [
        words
        for page in PAGES
        for block in blocks(page)
        if block.language in ("sh", "console")
        for words in commands(block)
    ]
    programs = {words[0] for words in shown}
    assert {"kubectl", "helm", "make", "python", "pip"} <= programs
    assert len(shown) > 50
    told = {words[0] for page in PAGES for words in sentences(page)}
    assert set(ELSEWHERE) - programs - told - {"docker", "systemctl", "curl"} == set()


@pytest.mark.parametrize(
    "command",
    [
        "kubectl ullage stats",
        "kubectl ullage status --wide",
        "kubectl ullage why",
        "kubectl ullage drain NODE --force",
        "kubectl ullage profile push resnet",
        "kubectl ullage simulate --nothing 1",
        "kubectl get trainjobs",
        "kubectl get pods --everywhere",
        "kubectl fetch pods",
        "kubectl get pods,lease ullage-operator",
        "kubectl wait --for=condition=Completed tj/my-job",
        "kubectl wait --for=completed tj/my-job",
        "helm install ullage charts/ullage --set node.mpss.enabled=true",
        "helm install ullage charts/nothing",
        "helm install ullage charts/ullage --every-namespace",
        "helm plant ullage",
        "make everything",
        "make demo CLUSTERS=kind",
        "python -m ullage_run.nothing",
        "python -m ullage_router --objective-seconds 50",
        "python train.py",
        "pip install 'ullage[nothing]'",
        "pip install torch",
        "localcluster/run sideways",
        "kubctl get pods",
    ],
)
def test_a_command_that_no_program_takes_is_found(command: str, folder: Path) -> None:
    (words,) = commands_of(command)
    assert len(faults(words, whole=True, folder=folder)) == 1


def test_a_line_is_cut_into_its_commands() -> None:
    text = (
        "$ export A=1 && B=2 sudo make demo \\\n    KEEP=1 > out.txt  # all of it\n"
        "printed\n$ ls | wc\n"
    )
    block = Block(page=ROOT / "README.md", line=1, language="console", text=text)
    assert list(commands(block)) == [
        ["export", "A=1"],
        ["make", "demo", "KEEP=1"],
        ["ls"],
        ["wc"],
    ]
