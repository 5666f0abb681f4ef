"""[providers.x]: providers of language models with their own URLs or keys."""

from __future__ import annotations

from pydantic import Field

from holdfast.settings.table import Table


class Provider(Table):
    """A provider; model = "local:llama" of an agent names the table [providers.local]."""

    kind: str = Field(default="", examples=["openai-chat"])
    """Protocol, by pydantic-ai's name: openai, openai-chat, anthropic, …; by default the name of
    the table."""
    base_url: str = Field(default="", examples=["http://127.0.0.1:11434/v1"])
    """Base URL of the API, if it is not the provider's own."""
    key_variable: str = Field(default="", examples=["LOCAL_API_KEY"])
    """Environment variable with the key; by default the provider's own, such as OPENAI_API_KEY."""
