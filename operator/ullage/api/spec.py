# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
"""Specs: a frozen record is the one declaration of the CRD's schema, the defaults and the reader.

A field says with pydantic's annotations what it is on the wire, its bounds among them; its
docstring is user documentation. Where the record holds another unit or type than the wire, a
:class:`Scalar` or a :class:`KeyedBy` says both. What is read is validated once, straight into the
record; fields that a newer version adds are ignored, and null counts as absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final, Generic, TypeVar, cast

from pydantic import (
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    TypeAdapter,
    ValidationError,
)
from pydantic.config import JsonDict
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, PydanticOmit, core_schema

from ullage.api.codec import wire_name
from ullage.api.readers import JsonObject, WireError, quoted
from ullage.api.rule import Rule, RuleBroken, validations
from ullage.api.times import rfc3339, stated_moment
from ullage.api.wire_fields import INT32_MAX

Held = TypeVar("Held")
Location = tuple[int | str, ...]

Switch = Annotated[bool, Strict()]
SAYS_NOTHING: Final = PlainSerializer(lambda held: held or None)
"""0 or an empty text stands for a field that is absent: the CRD has no default for it."""
_BOUNDS: Final = "bounds"
_NUMBER: Final = "number"
"""Types of the errors of a whole and of another number."""
_SHOWN_BITS: Final = 64
"""Of a whole number that an error shows: JSON bounds none."""
_NULL_ROUNDS: Final = 64
"""How often nulls are taken out: a list stops at its first fault, as users choose its length."""
_NESTED_MOST: Final = 128
"""Characters of a name that an error shows."""


def spelling(name: str) -> str:
    """The API's spelling of a Python attribute."""
    return "class" if name == "workload_class" else wire_name(name)


class Spec:
    """Base of the frozen dataclasses that declare a part of a spec.

    Attributes:
        rules: What the API server checks of the part; those with a predicate are checked on
            reading, too.
    """

    __slots__ = ()
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=spelling, extra="ignore")
    rules: ClassVar[tuple[Rule, ...]] = ()

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The fields, then the rules."""
        checked = tuple((rule.holds, rule) for rule in cls.rules if rule.holds is not None)
        written = core_schema.wrap_serializer_function_ser_schema(
            lambda record, write: {
                name: value for name, value in write(record).items() if value is not None
            }
        )
        fields = dict(handler.resolve_ref_schema(handler(source)))
        if not checked:
            return cast("CoreSchema", {**fields, "serialization": written})
        # a part that stands in two places is found again by its reference: with the rules
        reference = fields.pop("ref")

        def keeps_rules(record: Held) -> Held:
            for holds, rule in checked:
                if not holds(record):
                    raise RuleBroken(rule, record)
            return record

        return core_schema.no_info_after_validator_function(
            keeps_rules, cast("CoreSchema", fields), ref=reference, serialization=written
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The fields with the rules."""
        node = handler.resolve_ref_schema(handler(schema))
        if cls.rules:
            node.update(validations(*cls.rules))
        return node


class OpenSpec(Spec):
    """Base of parts that belong to Kubernetes: the CRD keeps fields that are not declared here."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The fields with the rules, and whatever else there is."""
        node = super().__get_pydantic_json_schema__(schema, handler)
        node["additionalProperties"] = True
        return node


def as_wire(record: Spec) -> object:
    """A record as the wire spells it; what is absent is left out."""
    adapter: TypeAdapter[Any] = TypeAdapter(type(record))
    return adapter.dump_python(record, mode="json", by_alias=True, exclude_none=True)


class SpecSchema(GenerateJsonSchema):
    """JSON schema of specs: a default is written as the wire spells it."""

    def get_default_value(self, schema: core_schema.WithDefaultSchema) -> object:
        """The default of a field, also one that a factory makes."""
        if "default_factory" in schema:
            make: Callable[[], object] = schema["default_factory"]  # type: ignore[assignment]
            return make()
        return super().get_default_value(schema)

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        """A field with its default, which states nothing that the CRD does not have there."""
        node = super().default_schema(schema)
        stated, properties = node.get("default"), node.get("properties")
        if isinstance(stated, dict) and isinstance(properties, dict):
            node["default"] = {name: stated[name] for name in stated if name in properties}
        return node

    def encode_default(self, dft: object) -> object:
        """The default as JSON."""
        return as_wire(dft) if isinstance(dft, Spec) else super().encode_default(dft)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scalar:
    """A field that the record holds in another unit or type than the wire.

    Attributes:
        read: From decoded JSON; a ``ValueError`` says what is wrong, without the place.
        write: Back to JSON; ``None`` = the field is absent.
        schema: In the CRD.
        rule: What the API server checks of it; its predicate is asked of what was read.
    """

    read: Callable[[Any], object]
    write: Callable[[Any], object]
    schema: JsonDict
    rule: Rule | None = None

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Reads and writes with these functions alone."""
        return core_schema.no_info_plain_validator_function(
            self._checked if self.rule is not None and self.rule.holds is not None else self.read,
            serialization=core_schema.plain_serializer_function_ser_schema(self.write),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The stated schema."""
        return {**self.schema, **(validations(self.rule) if self.rule is not None else {})}

    def _checked(self, value: object) -> object:
        held, rule = self.read(value), self.rule
        if rule is not None and rule.holds is not None and not rule.holds(held):
            raise RuleBroken(rule, held)
        return held


@dataclass(frozen=True, slots=True, eq=False)
class Keeps:
    """A field that keeps a rule of its own."""

    rule: Rule

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The field, then the rule."""
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The field with the rule."""
        return {**handler(schema), **validations(self.rule)}

    def _checked(self, held: object) -> object:
        if self.rule.holds is not None and not self.rule.holds(held):
            raise RuleBroken(self.rule, held)
        return held


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedBy:
    """A list of records on the wire, each of which has a key of its own.

    Attributes:
        fields: The fields that make the key, as the wire spells them.
        key: From a record to its key.
    """

    fields: tuple[str, ...]
    key: Callable[[Any], object]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A list, then its keys."""
        return core_schema.no_info_after_validator_function(self.distinct, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """A list map."""
        keys: list[Any] = list(self.fields)
        kind: JsonDict = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys}
        return {**handler(schema), **kind}

    def distinct(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """The same records.

        Raises:
            WireError: two of them have one key.
        """
        seen: set[object] = set()
        for item in items:
            key = self.key(item)
            if key in seen:
                stated = key if isinstance(key, tuple) else (key,)
                shown = ", ".join(quoted(str(part)) for part in stated)
                raise WireError(f"{' and '.join(self.fields)} {shown} is there twice")
            seen.add(key)
        return items


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedBy(KeyedBy):
    """The same where the record holds a mapping.

    Attributes:
        item: Type of the records on the wire.
        value: From such a record to what the mapping holds.
        entry: From key and value to such a record.
        most: Most of them.
    """

    item: type[Spec]
    value: Callable[[Any], object]
    entry: Callable[[Any, Any], Spec]
    most: int

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """A list, then the mapping."""
        items = core_schema.tuple_schema(
            [handler.generate_schema(self.item)],
            variadic_item_index=0,
            max_length=self.most,
            fail_fast=True,
        )
        return core_schema.no_info_after_validator_function(
            lambda read: {self.key(item): self.value(item) for item in self.distinct(read)},
            items,
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda held: [as_wire(self.entry(key, value)) for key, value in held.items()]
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """A field of the record that follows from another part of the object; no one states it."""

    held: object

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Whatever stands there is an unknown field."""
        return core_schema.no_info_plain_validator_function(
            lambda _: self.held,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda _: None),
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """No property of the CRD.

        Raises:
            PydanticOmit: always.
        """
        raise PydanticOmit


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """A whole number within bounds; a boolean is none.

    Attributes:
        least: The smallest.
        most: The largest.
        wide: The CRD says 64 bits though 32 are enough.
    """

    least: int
    most: int
    wide: bool = False

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The bounds, with one error for both."""
        inner = core_schema.int_schema(strict=True, ge=self.least, le=self.most)
        return _one_error(inner, _BOUNDS, self.least, self.most)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """An integer of 32 bits where that is enough."""
        size = "int64" if self.wide or self.most > INT32_MAX else "int32"
        return {**handler(schema), "format": size}


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A finite number within bounds: the smallest and the largest."""

    least: float
    most: float

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The bounds, with one error for both."""
        inner = core_schema.float_schema(
            strict=True, ge=self.least, le=self.most, allow_inf_nan=False
        )
        return _one_error(inner, _NUMBER, self.least, self.most)


def _one_error(inner: CoreSchema, kind: str, least: float, most: float) -> CoreSchema:
    return core_schema.custom_error_schema(
        inner,
        custom_error_type=kind,
        custom_error_message=kind,
        custom_error_context={"least": least, "most": most},
    )


def text_map(entries: int, characters: int) -> Scalar:
    """Texts by names that the user chooses; null is no text, as no name goes without one.

    Args:
        entries: At most so many.
        characters: At most so many of each text.
    """

    def read(value: object) -> dict[str, str]:
        if not isinstance(value, dict):
            raise WireError(f"expected an object, got {type(value).__name__}")
        if len(value) > entries:
            raise WireError(f"{len(value)} entries, at most {entries}")
        for name, text in value.items():
            if not isinstance(text, str) or len(text) > characters:
                got = quoted(text) if isinstance(text, str) else type(text).__name__
                most = f"a string of at most {characters} characters"
                raise WireError(f"{quoted(name)}: expected {most}, got {got}")
        return dict(value)

    schema: JsonDict = {
        "type": "object",
        "additionalProperties": {"type": "string", "maxLength": characters},
        "maxProperties": entries,
    }
    return Scalar(read=read, write=dict, schema=schema)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Inside:
    """An object on the wire of which the record holds one value; 0 = the object is absent.

    Attributes:
        item: What the object is.
        value: From the object to what is held.
        entry: Back to the object.
    """

    item: type[Spec]
    value: Callable[[Any], object]
    entry: Callable[[Any], Spec]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The object, then its value."""
        return core_schema.no_info_after_validator_function(
            self.value,
            handler.generate_schema(self.item),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda held: as_wire(self.entry(held)) if held else None
            ),
        )


def word_of(words: type[StrEnum]) -> Scalar:
    """A word of a list that the record holds as text; an empty one is absent."""
    known: list[Any] = [word.value for word in words]
    accepted = frozenset(known)

    def read(value: object) -> str:
        if isinstance(value, str) and value in accepted:
            return value
        raise WireError(_no_word(value, known))

    return Scalar(
        read=read, write=lambda held: held or None, schema={"type": "string", "enum": known}
    )


def is_word(word: StrEnum, other: StrEnum) -> Scalar:
    """True for this word of its list; false is written as ``other``."""
    known: list[Any] = [each.value for each in type(word)]

    def read(value: object) -> bool:
        if value not in known:
            raise WireError(_no_word(value, known))
        return value == word.value

    return Scalar(
        read=read,
        write=lambda held: (word if held else other).value,
        schema={"type": "string", "enum": known},
    )


def _moment(value: object) -> float:
    if not isinstance(value, str):
        raise WireError(f"expected a time, got {type(value).__name__}")
    return stated_moment(value)


def _written_moment(moment: float) -> str:
    if moment == int(moment):
        return rfc3339(moment)
    return datetime.fromtimestamp(moment, UTC).isoformat()


Moment: Final = Scalar(
    read=_moment, write=_written_moment, schema={"type": "string", "format": "date-time"}
)
"""A time, held in seconds since the epoch."""


@dataclass(frozen=True, slots=True, eq=False)
class Without:
    """A part in whose CRD these properties are missing, as another kind has them alone."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The part as it is; these fields are not written."""
        written = core_schema.wrap_serializer_function_ser_schema(
            lambda record, write: {
                name: value for name, value in write(record).items() if name not in self.names
            }
        )
        return cast("CoreSchema", {**handler(source), "serialization": written})

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """The schema without them."""
        node = handler.resolve_ref_schema(handler(schema))
        properties = {
            name: part for name, part in node["properties"].items() if name not in self.names
        }
        return {**node, "properties": properties}


@dataclass(frozen=True, slots=True, eq=False)
class ReadApart:
    """An object that this record declares; the reader of the whole spec keeps it as it is.

    What is large is read once a version, by a reader of its own; a file is read at once.
    """

    record: type[Spec]

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """The record for a file, any object for what the API server stored."""
        adapter = TypeAdapter(self.record)

        def checked(value: object, _: object) -> object:
            adapter.validate_python(value, strict=False)
            return value

        return core_schema.json_or_python_schema(
            json_schema=core_schema.no_info_wrap_validator_function(
                checked,
                handler.generate_schema(self.record),
                serialization=core_schema.plain_serializer_function_ser_schema(dict),
            ),
            python_schema=core_schema.is_instance_schema(dict),
        )


class SpecReader(Generic[Held]):
    """Reads a part of an object into its record."""

    def __init__(self, record: type[Held], path: str = "spec") -> None:
        """The reader of a record that stands at this path."""
        self._validator: Final = TypeAdapter(record).validator
        self._path: Final = path

    def __call__(self, raw: JsonObject) -> Held:
        """The record.

        Raises:
            WireError: a field is missing, malformed or breaks a rule; the text begins with its
                path.
        """
        try:
            read: Held = self._validator.validate_python(raw)
        except ValidationError as error:
            return self._without_nulls(raw, error)
        return read

    def strictly(self, raw: object) -> Held:
        """The record of what a person wrote into a file, where an unknown field is a mistake.

        Raises:
            WireError: as above, or there is such a field.
        """
        try:
            read: Held = self._validator.validate_python(raw, extra="forbid")
        except ValidationError as error:
            raise WireError(fault_text(error.errors(include_url=False)[0], self._path)) from error
        return read

    def _without_nulls(self, raw: object, error: ValidationError) -> Held:
        for _ in range(_NULL_ROUNDS):
            faults = error.errors(include_url=False)
            nulls = [
                fault["loc"]
                for fault in faults
                if fault["input"] is None and fault["loc"] and isinstance(fault["loc"][-1], str)
            ]
            if not nulls:
                break
            raw = _left_out(raw, nulls)
            try:
                read: Held = self._validator.validate_python(raw)
            except ValidationError as again:
                error = again
            else:
                return read
        raise WireError(fault_text(error.errors(include_url=False)[0], self._path)) from error


def _left_out(raw: object, places: Collection[Location]) -> object:
    """A copy without these fields; what it was made from stays as it is."""
    copied = _shallow(raw)
    for *way, field in places:
        node = copied
        for step in way:
            node[step] = node = _shallow(node[step])
        node.pop(field, None)
    return copied


def _shallow(value: Any) -> Any:
    return list(value) if isinstance(value, list) else dict(value)


def fault_text(fault: ErrorDetails, path: str = "") -> str:
    """Field and fault in one line, as ``spec.gpu.count: 17 must be at most 16``."""
    place = path
    for step in fault["loc"]:
        if isinstance(step, int):
            place += f"[{step}]"
        else:
            shown = step.encode(errors="replace").decode()
            place += f".{shown if len(shown) <= _NESTED_MOST else quoted(shown)}"
    error = fault.get("ctx", {}).get("error")
    if isinstance(error, RuleBroken):
        place += error.field
    return f"{place.removeprefix('.')}: {_fault(fault, error)}"


_EXPECTED: Final[Mapping[str, str]] = {
    _BOUNDS: "a whole number",
    _NUMBER: "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "string_unicode": "a string",
    "enum": "a string",
    "tuple_type": "a list",
    "list_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "model_type": "an object",
    "is_instance_of": "an object",
}
_PATTERNS: Final[dict[str, str]] = {}


def patterned(pattern: str, what: str, **bounds: Any) -> FieldInfo:
    """A text of this pattern; ``what`` says in errors what another one is not."""
    _PATTERNS[pattern] = what
    field_info: FieldInfo = Field(pattern=pattern, **bounds)
    return field_info


def listed(most: int, *, least: int | None = None, **schema: Any) -> FieldInfo:
    """A list of bounded length, read up to its first fault: users choose how many there are.

    Args:
        most: Its longest length.
        least: Its shortest.
        schema: What else the CRD says of it.
    """
    field_info: FieldInfo = Field(
        min_length=least, max_length=most, fail_fast=True, json_schema_extra=schema or None
    )
    return field_info


def _fault(fault: ErrorDetails, error: object) -> str:
    """The fault without its place."""
    if error is not None:
        return str(error)
    kind, value, context = fault["type"], fault["input"], fault.get("ctx", {})
    stated = _shown(value)
    match kind:
        case "missing":
            return "missing"
        case _ if kind == _BOUNDS and type(value) is int:
            return f"{stated} must be from {context['least']} to {context['most']}"
        case "unexpected_keyword_argument":
            return "there is no such field"
        case "enum" if isinstance(value, str):
            return _no_word(value, re.findall(r"'([^']*)'", context["expected"]))
        case "string_pattern_mismatch":
            what = _PATTERNS.get(context["pattern"])
            return f"{stated} is no {what or 'text of the form ' + context['pattern']}"
        case "string_too_long":
            return f"{stated} must have at most {context['max_length']} characters"
        case "string_too_short":
            return f"{stated} must have at least {context['min_length']} characters"
        case "too_long":
            return f"{len(value)} entries, at most {context['max_length']}"
        case "too_short":
            return f"{context['actual_length']} entries, at least {context['min_length']}"
        case _ if kind == _NUMBER and type(value) in (int, float):
            return f"{stated} must be a number from {context['least']:g} to {context['most']:g}"
        case _ if kind in _EXPECTED:
            return f"expected {_EXPECTED[kind]}, got {type(value).__name__}"
    return fault["msg"][:_NESTED_MOST]


def _shown(value: object) -> str:
    """A value in an error; one that JSON does not bound is not written out."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and value.bit_length() <= _SHOWN_BITS:
        return str(value)
    return "so large a number" if isinstance(value, int) else type(value).__name__


def _no_word(value: object, known: Collection[str]) -> str:
    if not isinstance(value, str):
        return f"expected a string, got {type(value).__name__}"
    return f"{quoted(value)} is none of {', '.join(word for word in known if word)}"
