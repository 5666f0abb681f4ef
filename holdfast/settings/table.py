"""Tables of holdfast.toml: settings that come in groups, such as [providers.local] or [[channels.slack]]."""

from __future__ import annotations

from typing import Any, get_args, get_origin

from pydantic import BaseModel, ConfigDict
from pydantic.fields import FieldInfo

Keys = tuple[str | int, ...]
"""Where a value stands: ("agents", "coder", "model"), or ("channels", "slack", 0, "name") in the first of several."""


class Table(BaseModel):
    """The text below a field is what `holdfast init` writes; an example stands where the default is no value.

    In another table or in Settings, `name: T` is [name], `name: dict[str, T]` is [name.any] with the name of an example
    as in `Field(default_factory=dict, examples=["local"])`, and `name: tuple[T, ...] = ()` is [[name]], once or more.
    A union `T = Annotated[One | Other, Field(discriminator="kind")]` lets `kind = "one"` choose; one example each."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def tables_in(field: FieldInfo) -> tuple[type[Table], ...]:
    """The kinds of tables that a field holds; none for a plain value."""
    return tuple(_tables(field.annotation))


def models_at(model: type[BaseModel], keys: Keys) -> list[type[BaseModel]]:
    """What may stand below these keys: several where a kind chooses."""
    models = [model]
    for key in keys:
        fields = [one.model_fields[str(key)] for one in models if key in one.model_fields]
        # The name or the number of one among several tables leads no further down.
        models = [table for field in fields for table in tables_in(field)] or models
    return models


def headers_of(name: str, field: FieldInfo) -> list[str]:
    """How the tables of this field begin, one for each kind."""
    if get_origin(field.annotation) is tuple:
        return [f"[[{name}]]"]
    return [f"[{name}.{example}]" for example in field.examples or ()] or [f"[{name}]"]


def _tables(annotation: Any) -> list[type[Table]]:
    if isinstance(annotation, type) and issubclass(annotation, Table):
        return [annotation]
    return [table for inner in get_args(annotation) for table in _tables(inner)]
