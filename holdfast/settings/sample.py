"""Generate the holdfast.toml of `holdfast init` from the settings themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from textwrap import wrap

from pydantic import BaseModel

from holdfast.settings.duration import duration_text
from holdfast.settings.environment import PREFIX
from holdfast.settings.fields import Settings
from holdfast.settings.table import Table, headers_of, tables_in

WIDTH = 100


def descriptions(model: type[BaseModel] = Settings) -> dict[str, str]:
    """Return the text below each field.

    It is parsed from the source on demand, because that would slow down every start."""
    import ast
    import inspect

    [definition] = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def value_text(name: str, model: type[BaseModel] = Settings) -> str:
    """Return a setting's default as TOML, or its example if it has one."""
    field = model.model_fields[name]
    value = field.examples[0] if field.examples else field.get_default(call_default_factory=True)
    if isinstance(value, timedelta):
        value = duration_text(value)
    # JSON of numbers, texts and lists of them is valid TOML.
    return json.dumps(value, ensure_ascii=False, default=str)


SAMPLE_HEADER = (
    "# Settings of Holdfast: defaults and examples. Remove a # to change a setting.",
    '# A duration is a text like "30s", "10 min" or "24h", or a number of seconds.',
    f"# {PREFIX}<NAME> in the environment overrides this file; options override both.",
)


def sample_toml() -> str:
    """Return a holdfast.toml with every setting as a comment."""
    lines = [*SAMPLE_HEADER, *_values(Settings, descriptions())]
    for section in sections():
        lines += [
            "",
            "",
            *_comment(section.text),
            f"#{section.header}",
            *_values(section.table, section.fields),
        ]
    return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True)
class Section:
    """A kind of table: its header, its purpose, and the text of each field."""

    header: str
    text: str
    table: type[Table]
    fields: dict[str, str]


def sections(model: type[BaseModel] = Settings, above: str = "") -> Iterator[Section]:
    """Yield every kind of table; only the first one lists the fields that kinds share."""
    for name, field in model.model_fields.items():
        listed: set[str] = set()
        kinds = tables_in(field)
        for header, table in zip(headers_of(f"{above}{name}", field), kinds, strict=False):
            texts = {
                known: text
                for known, text in _inherited_descriptions(table).items()
                if known not in listed
            }
            listed |= {
                known for base in table.__bases__ for known in getattr(base, "model_fields", ())
            }
            text = descriptions(model)[name] if len(kinds) == 1 else _purpose(table)
            yield Section(header, text, table, texts)
            yield from sections(table, f"{above}{name}.")


def _purpose(table: type[Table]) -> str:
    return str(table.__doc__).splitlines()[0]


def _inherited_descriptions(model: type[BaseModel]) -> dict[str, str]:
    bases = [base for base in model.__bases__ if issubclass(base, Table) and base is not Table]
    return descriptions(model) | {
        name: text for base in bases for name, text in _inherited_descriptions(base).items()
    }


def _values(model: type[BaseModel], texts: dict[str, str]) -> Iterator[str]:
    for name, text in texts.items():
        if not tables_in(model.model_fields[name]):
            yield from ("", *_comment(text), f"#{name} = {value_text(name, model)}")


def _comment(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ", break_long_words=False)
