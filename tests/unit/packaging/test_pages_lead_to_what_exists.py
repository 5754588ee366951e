# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Links of all pages lead to files and headings that exist, and every page stands in the site."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml

from ullage.api.reasons import ConditionType, Reason
from unit.packaging.repository import ROOT

LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^()\s]+(?:\([^()]*\))?[^()\s]*)\)")
PICTURE = re.compile(r"!\[[^\]]*\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} (.+?)\s*#*$", re.MULTILINE)
WORD = re.compile(r"`([A-Z][a-z]+(?:[A-Z]+[a-z]*)+)(?:=\w+)?`")
PAGES = sorted(
    path
    for folder in (
        "",
        "docs",
        "docs/adr",
        "docs/reference",
        "examples",
        "localcluster",
        "charts/ullage",
    )
    for path in (ROOT / folder).glob("*.md")
)
OTHERS = {"NotAdopted", "MutatingAdmissionPolicy", "ForeignPod", "SchedulingGated"}
"""Words in troubleshooting that look like reasons and are kinds or Events."""


def _text(page: Path) -> str:
    return CODE.sub("", page.read_text(encoding="utf-8"))


def _slugs(page: Path) -> set[str]:
    """Anchors of a page as GitHub makes them."""
    found: dict[str, int] = {}
    slugs = set()
    for title in HEADING.findall(_text(page)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        plain = unicodedata.normalize("NFC", plain).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = found.get(slug, 0)
        found[slug] = count + 1
        slugs.add(f"{slug}-{count}" if count else slug)
    return slugs


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    wrong, text = [], INLINE.sub("code", _text(page))
    for target in (*LINK.findall(text), *PICTURE.findall(text)):
        if "://" in target or target.startswith("mailto:"):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in _slugs(to)):
            wrong.append(target)
    assert not wrong


def _pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages_of(part)]


def test_the_site_has_every_page_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    listed = _pages_of(site["nav"])
    docs = ROOT / "docs"
    there = {
        str(path.relative_to(docs))
        for folder in (docs, docs / "reference")
        for path in folder.glob("*.md")
    }
    assert sorted(listed) == sorted(there)


def test_reasons_that_troubleshooting_names_exist() -> None:
    known = {one.value for one in Reason} | {one.value for one in ConditionType} | OTHERS
    named = set(WORD.findall((ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")))
    assert len(named) > 15
    assert named - known == set()
