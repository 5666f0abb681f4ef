"""[providers.x]: where a language model answers, for addresses and keys that are not the provider's own."""

from __future__ import annotations

from pydantic import Field

from holdfast.settings.table import Table


class Provider(Table):
    """An agent's model = "local:llama" asks the provider of this name; one without a table is known by its name."""

    kind: str = Field(default="", examples=["openai-chat"])
    """Whose protocol it speaks: openai, openai-chat, anthropic, … as pydantic-ai says; by default its own name."""
    base_url: str = Field(default="", examples=["http://127.0.0.1:11434/v1"])
    """Address of the API, where it is not the provider's own."""
    key_variable: str = Field(default="", examples=["LOCAL_API_KEY"])
    """Variable of the environment that holds the key; by default the provider's own, such as OPENAI_API_KEY."""
