# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""What the pages show to be typed or applied: blocks, commands and words of code.

A block has its language: ``sh`` holds commands alone, ``console`` commands behind ``$`` and what
they print, ``text`` is printed or drawn. A block without a language is a fault.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

from unit.packaging.repository import ROOT

PAGES: Final = sorted(
    path
    for folder in ("", "docs", "docs/reference", "examples", "localcluster", "charts/ullage")
    for path in (ROOT / folder).glob("*.md")
    if path.name != "CHANGELOG.md"
)
PROGRAMS: Final = frozenset({"kubectl", "ullage", "helm", "make", "python", "pip"})
"""Programs whose words in a sentence are checked, too."""
_PARSER: Final = MarkdownIt("commonmark").enable("table")
_JOINED: Final = re.compile(r"\\\n\s*")
_ENDS: Final = frozenset({"&&", "||", "|", ";"})
_WRITES: Final = frozenset({">", ">>", "<"})
_ASSIGNED: Final = re.compile(r"^[A-Z_][A-Z0-9_]*=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced or indented block: where it begins, its language, its text."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        """File and line, for people."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def _tokens(page: Path) -> Sequence[Token]:
    """A page is parsed once, however many tests read it."""
    return _PARSER.parse(page.read_text(encoding="utf-8"))


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of code of a page, in order."""
    for token in _tokens(page):
        if token.type in ("fence", "code_block"):
            line = token.map[0] + 1 if token.map else 0
            yield Block(page=page, line=line, language=token.info, text=token.content)


def sentences(page: Path) -> Iterator[list[str]]:
    """Commands that stand in a sentence; what they need may be left out there."""
    for token in _tokens(page):
        for child in token.children or ():
            words = child.content.split() if child.type == "code_inline" else []
            if len(words) > 1 and words[0] in PROGRAMS:
                yield from commands_of(child.content)


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a block of ``sh`` or ``console``, each as its words.

    Raises:
        ValueError: a quote is not closed.
    """
    text = _JOINED.sub(" ", block.text)
    for line in text.splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        yield from commands_of(line.removeprefix("$ ") if block.language == "console" else line)


def commands_of(line: str) -> Iterator[list[str]]:
    """The commands of one line, without comments, assignments, redirections and sudo."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split = True
    found: list[str] = []
    words = iter(lexer)
    for word in words:
        if word in _ENDS:
            yield from _plain(found)
            found = []
        elif word in _WRITES:
            next(words, None)
        else:
            found.append(word)
    yield from _plain(found)


def _plain(words: list[str]) -> Iterator[list[str]]:
    while words and (words[0] == "sudo" or _ASSIGNED.match(words[0])):
        words = words[1:]
    if words:
        yield words
