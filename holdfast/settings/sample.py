"""The holdfast.toml that `holdfast init` writes, made from the settings themselves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise

from pydantic import BaseModel

from holdfast.settings.duration import duration_text
from holdfast.settings.environment import PREFIX
from holdfast.settings.fields import Settings
from holdfast.settings.table import Table, header_of, tables_in


def descriptions(model: type[BaseModel] = Settings) -> dict[str, str]:
    """The text below each field, read from its file when somebody asks: as a start-up cost it would be too much."""
    import ast
    import inspect

    [made] = ast.parse(inspect.getsource(model)).body
    assert isinstance(made, ast.ClassDef)
    own = {
        field.target.id: text.value.value
        for field, text in pairwise(made.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
    bases = [base for base in model.__bases__ if issubclass(base, Table) and base is not Table]
    return own | {name: text for base in bases for name, text in descriptions(base).items()}


def value_text(name: str, model: type[BaseModel] = Settings) -> str:
    """A setting's default as TOML, or its example where the default is no value."""
    field = model.model_fields[name]
    value = field.examples[0] if field.examples else field.get_default(call_default_factory=True)
    if isinstance(value, timedelta):
        value = duration_text(value)
    # For numbers, texts and lists of them JSON is TOML.
    return json.dumps(value, ensure_ascii=False, default=str)


def commented() -> str:
    """A holdfast.toml in which every setting stands as a comment."""
    lines = [
        "# Settings of Holdfast. Remove the # before a line to change it; it shows the default, or an example.",
        '# A duration is a text like "30s", "10 min" or "24h", or a number of seconds.',
        f"# {PREFIX}<NAME> in the environment wins over this file, and an option of a command over both.",
    ]
    lines += _values(Settings)
    for header, text, table in sections():
        lines += ["", "", f"# {text}", f"#{header}", *_values(table)]
    return "\n".join([*lines, ""])


def sections(model: type[BaseModel] = Settings, above: str = "") -> Iterator[tuple[str, str, type[Table]]]:
    """Every kind of table: its header, the text of its field, and what it holds."""
    for name, field in model.model_fields.items():
        for table in tables_in(field):
            yield header_of(f"{above}{name}", field), descriptions(model)[name], table
            yield from sections(table, f"{above}{name}.")


def _values(model: type[BaseModel]) -> Iterator[str]:
    for name, text in descriptions(model).items():
        if not tables_in(model.model_fields[name]):
            yield from ("", f"# {text}", f"#{name} = {value_text(name, model)}")
