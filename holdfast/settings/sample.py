"""The holdfast.toml that `holdfast init` writes, made from the settings themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

from pydantic import BaseModel

from holdfast.settings.duration import duration_text
from holdfast.settings.environment import PREFIX
from holdfast.settings.fields import Settings
from holdfast.settings.table import Table, headers_of, tables_in


def descriptions(model: type[BaseModel] = Settings) -> dict[str, str]:
    """The text below each field, read from the file when somebody asks: at each start it would cost too much."""
    import ast
    import inspect

    [made] = ast.parse(inspect.getsource(model)).body
    assert isinstance(made, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def value_text(name: str, model: type[BaseModel] = Settings) -> str:
    """A setting's default as TOML, or its example where the default is no value."""
    field = model.model_fields[name]
    value = field.examples[0] if field.examples else field.get_default(call_default_factory=True)
    if isinstance(value, timedelta):
        value = duration_text(value)
    # For numbers, texts and lists of them JSON is TOML.
    return json.dumps(value, ensure_ascii=False, default=str)


def sample_toml() -> str:
    """A holdfast.toml in which every setting stands as a comment."""
    lines = [
        "# Settings of Holdfast. Remove the # before a line to change it; it shows the default, or an example.",
        '# A duration is a text like "30s", "10 min" or "24h", or a number of seconds.',
        f"# {PREFIX}<NAME> in the environment wins over this file, and an option of a command over both.",
    ]
    lines += _values(Settings, descriptions())
    for section in sections():
        lines += [
            "",
            "",
            f"# {section.text}",
            f"#{section.header}",
            *_values(section.table, section.fields),
        ]
    return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True)
class Section:
    """A kind of table: its header, what it is for, and the text of each of its fields."""

    header: str
    text: str
    table: type[Table]
    fields: dict[str, str]


def sections(model: type[BaseModel] = Settings, above: str = "") -> Iterator[Section]:
    """Every kind of table; what several kinds have in common stands in the first."""
    for name, field in model.model_fields.items():
        told: set[str] = set()
        kinds = tables_in(field)
        for header, table in zip(headers_of(f"{above}{name}", field), kinds, strict=False):
            texts = {known: text for known, text in _inherited(table).items() if known not in told}
            told |= {
                known for base in table.__bases__ for known in getattr(base, "model_fields", ())
            }
            text = descriptions(model)[name] if len(kinds) == 1 else _purpose(table)
            yield Section(header, text, table, texts)
            yield from sections(table, f"{above}{name}.")


def _purpose(table: type[Table]) -> str:
    return str(table.__doc__).splitlines()[0]


def _inherited(model: type[BaseModel]) -> dict[str, str]:
    bases = [base for base in model.__bases__ if issubclass(base, Table) and base is not Table]
    return descriptions(model) | {
        name: text for base in bases for name, text in _inherited(base).items()
    }


def _values(model: type[BaseModel], texts: dict[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        if not tables_in(model.model_fields[name]):
            yield from ("", f"# {text}", f"#{name} = {value_text(name, model)}")
