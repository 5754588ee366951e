# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""As much of CEL as our validation rules use, so that a unit test can break one and see it.

A parser to Python closures. Anything that it does not know is an error, never true; a missing field
is an error, as in CEL, and an error is swallowed by ``&&`` and ``||`` only where the other side
decides. The API server itself is asked in ``tests/e2e/test_golden_manifests.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Value = Any
Scope = Mapping[str, Value]
Expression = Callable[[Scope], Value]

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.\d+|\d+)|(?P<text>'(?:[^'\\]|\\.)*')|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<sign>&&|\|\||==|!=|<=|>=|[-<>!?:.,()\[\]+*/%]))"
)
_FACTORS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTP", 1)
}
_UNITS_S = {"h": 3600.0, "m": 60.0, "s": 1.0}
_LONGEST_S = 2**63 / 1e9


class CelError(Exception):
    """What CEL calls an error: a field that is not there, a value of another type."""


def holds(rule: str, value: Value, before: Value = None, **more: Value) -> bool:
    """Whether a rule is true of a value, and of ``more`` that it names; an error is not.

    Raises:
        SyntaxError: the rule uses what this module does not know.
    """
    try:
        return _Parser(rule).whole()({"self": value, "oldSelf": before, **more}) is True
    except CelError:
        return False


class _Parser:
    def __init__(self, rule: str) -> None:
        self._rule = rule
        self._tokens = list(_tokens(rule))
        self._at = 0

    def whole(self) -> Expression:
        found = self._ternary()
        if self._at < len(self._tokens):
            raise self._unknown()
        return found

    def _unknown(self) -> SyntaxError:
        at = self._tokens[self._at :][:3]
        return SyntaxError(f"not known: {at} in {self._rule}")

    def _take(self, *signs: str) -> str:
        """The next token, if it is one of these signs; else an empty text."""
        if self._at < len(self._tokens) and self._tokens[self._at] in {("sign", s) for s in signs}:
            self._at += 1
            return self._tokens[self._at - 1][1]
        return ""

    def _need(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unknown()

    def _ternary(self) -> Expression:
        condition = self._or()
        if not self._take("?"):
            return condition
        yes = self._ternary()
        self._need(":")
        no = self._ternary()
        return lambda scope: yes(scope) if _bool(condition(scope)) else no(scope)

    def _or(self) -> Expression:
        found = self._and()
        while self._take("||"):
            found = _decided(found, self._and(), decides=True)
        return found

    def _and(self) -> Expression:
        found = self._relation()
        while self._take("&&"):
            found = _decided(found, self._relation(), decides=False)
        return found

    def _relation(self) -> Expression:
        left = self._product()
        sign = self._take("==", "!=", "<=", ">=", "<", ">")
        if not sign and self._tokens[self._at : self._at + 1] == [("name", "in")]:
            self._at, sign = self._at + 1, "in"
        if not sign:
            return left
        right = self._product()
        return lambda scope: _compared(sign, left(scope), right(scope))

    def _product(self) -> Expression:
        found = self._unary()
        while self._take("*"):
            found = _times(found, self._unary())
        return found

    def _unary(self) -> Expression:
        if self._take("!"):
            inner = self._unary()
            return lambda scope: not _bool(inner(scope))
        return self._postfix()

    def _postfix(self) -> Expression:
        found = self._primary()
        while True:
            if self._take("["):
                key = self._ternary()
                self._need("]")
                found = _indexed(found, key)
            elif self._take("."):
                name = self._name()
                found = self._called(found, name) if self._take("(") else _member(found, name)
            else:
                return found

    def _name(self) -> str:
        kind, word = self._tokens[self._at]
        if kind != "name":
            raise self._unknown()
        self._at += 1
        return word

    def _primary(self) -> Expression:
        if self._take("("):
            found = self._ternary()
            self._need(")")
            return found
        if self._take("["):
            items: list[Expression] = []
            while not self._take("]"):
                items.append(self._ternary())
                self._take(",")
            return lambda scope: [item(scope) for item in items]
        if self._at >= len(self._tokens):
            raise self._unknown()
        kind, word = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number: Value = float(word) if "." in word else int(word)
            return lambda _: number
        if kind == "text":
            text = re.sub(r"\\(.)", r"\1", word[1:-1])
            return lambda _: text
        if kind != "name":
            self._at -= 1
            raise self._unknown()
        if word in ("true", "false", "null"):
            return lambda _: None if word == "null" else word == "true"
        if self._take("("):
            return self._function(word)
        return lambda scope: scope[word]

    def _function(self, name: str) -> Expression:
        argument = self._ternary()
        self._need(")")
        if name == "has":
            return lambda scope: _there(argument, scope)
        if name not in _FUNCTIONS:
            raise SyntaxError(f"no function {name}: {self._rule}")
        function = _FUNCTIONS[name]
        return lambda scope: function(argument(scope))

    def _called(self, found: Expression, name: str) -> Expression:
        if name in _MACROS:
            variable = self._name()
            self._need(",")
            inner = self._ternary()
            self._need(")")
            macro = _MACROS[name]
            return lambda scope: macro(
                [_bool(inner({**scope, variable: one})) for one in found(scope)]
            )
        arguments: list[Expression] = []
        while not self._take(")"):
            arguments.append(self._ternary())
            self._take(",")
        if name not in _METHODS:
            raise SyntaxError(f"no method {name}: {self._rule}")
        method = _METHODS[name]
        return lambda scope: method(found(scope), *(one(scope) for one in arguments))


def _tokens(rule: str) -> Iterator[tuple[str, str]]:
    at = 0
    while rule[at:].strip():
        found = _TOKEN.match(rule, at)
        if found is None or found.lastgroup is None:
            raise SyntaxError(f"not known: {rule[at : at + 20]!r} in {rule}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


def _times(left: Expression, right: Expression) -> Expression:
    return lambda scope: _whole(left(scope)) * _whole(right(scope))


def _whole(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _decided(left: Expression, right: Expression, *, decides: bool) -> Expression:
    """Logic of CEL: a side that decides does so whatever is wrong with the other."""

    def both(scope: Scope) -> bool:
        try:
            if _bool(left(scope)) is decides:
                return decides
        except CelError:
            if _bool(right(scope)) is decides:
                return decides
            raise
        return _bool(right(scope))

    return both


def _bool(value: Value) -> bool:
    if not isinstance(value, bool):
        raise CelError(f"no truth: {value!r}")
    return value


def _compared(sign: str, left: Value, right: Value) -> bool:
    if sign in ("==", "!="):
        return (left == right) is (sign == "==")
    if sign == "in":
        return left in right
    if isinstance(left, str) is not isinstance(right, str):
        raise CelError(f"{left!r} {sign} {right!r}")
    if sign in ("<", "<="):
        return bool(left < right or (sign == "<=" and left == right))
    return bool(left > right or (sign == ">=" and left == right))


def _member(found: Expression, name: str) -> Expression:
    def member(scope: Scope) -> Value:
        value = found(scope)
        if not isinstance(value, dict) or name not in value:
            raise CelError(f"no such key: {name}")
        return value[name]

    return member


def _indexed(found: Expression, key: Expression) -> Expression:
    def indexed(scope: Scope) -> Value:
        try:
            return found(scope)[key(scope)]
        except (LookupError, TypeError) as error:
            raise CelError(str(error)) from error

    return indexed


def _there(found: Expression, scope: Scope) -> bool:
    """``has``: an absent last field is no; an absent one before it is an error."""
    try:
        found(scope)
    except CelError:
        return False
    return True


def _text(value: Value) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else f"{value}"


def _quantity(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMGTP]i?|Ki)?", text)
    if found is None:
        raise CelError(f"no quantity: {text}")
    return float(found[1]) * _FACTORS.get(found[2] or "", 1)


def _duration(text: str) -> float:
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms])", text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise CelError(f"no duration: {text}")
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in parts)
    if seconds > _LONGEST_S:
        raise CelError(f"more nanoseconds than 64 bits hold: {text}")
    return seconds


def _double(text: Value) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise CelError(str(error)) from error


_FUNCTIONS: dict[str, Callable[[Value], Value]] = {
    "string": _text,
    "double": _double,
    "size": len,
    "quantity": _quantity,
    "duration": _duration,
}
_MACROS: dict[str, Callable[[list[bool]], bool]] = {
    "all": all,
    "exists": any,
    "exists_one": lambda found: sum(found) == 1,
}
_METHODS: dict[str, Callable[..., Value]] = {
    "matches": lambda text, pattern: re.search(pattern, text) is not None,
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "contains": lambda text, part: part in text,
    "isSorted": lambda items: items == sorted(items),
    "compareTo": lambda left, right: (left > right) - (left < right),
}
