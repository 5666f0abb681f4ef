"""Tables of holdfast.toml, such as [providers.local] or [[channels.slack]]."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

Keys = tuple[str | int, ...]
"""The path of a value: ("agents", "coder", "model"), or ("channels", "slack", 0, "name") in a
list of tables."""


class Table(BaseModel):
    """A group of settings. `holdfast init` writes the text below each field.

    An example replaces a default that is not a value. In another table or in Settings, `name: T` is
    [name]; `name: dict[str, T]` is [name.any], its name in `Field(examples=["local"])`; and
    `name: tuple[T, ...] = ()` is [[name]], once or more. In a union
    `T = Annotated[One | Other, Field(discriminator="kind")]`, `kind = "one"` chooses the table."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def tables_in(field: FieldInfo) -> tuple[type[Table], ...]:
    """Return the kinds of tables that a field holds; none for a plain value."""
    return tuple(_tables(field.annotation))


def models_at(model: type[BaseModel], keys: Keys) -> list[type[BaseModel]]:
    """Return the models that may be at these keys; several if a kind chooses."""
    models = [model]
    for key in keys:
        fields = [one.model_fields[str(key)] for one in models if key in one.model_fields]
        # The name or number of a table among several keeps the models as they are.
        models = [table for field in fields for table in tables_in(field)] or models
    return models


def headers_of(name: str, field: FieldInfo) -> list[str]:
    """Return the headers of the tables of a field, one for each kind."""
    if get_origin(field.annotation) is tuple:
        return [f"[[{name}]]"]
    return [f"[{name}.{example}]" for example in field.examples or ()] or [f"[{name}]"]


def _tables(annotation: Any) -> list[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    return [table for inner in get_args(annotation) for table in _tables(inner)]
