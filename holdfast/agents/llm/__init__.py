"""Agents that are language models, on pydantic-ai. Imported only if an app has one."""

from holdfast.agents.llm.agent import LlmAgent
from holdfast.agents.llm.context import Context, Reminder
from holdfast.agents.llm.durability import HoldfastDurability
from holdfast.agents.llm.model import model_of, scripted
from holdfast.agents.llm.prompt import Prompt
from holdfast.agents.llm.servers import McpServer, McpServerFailed, server_of

__all__ = [
    "Context",
    "HoldfastDurability",
    "LlmAgent",
    "McpServer",
    "McpServerFailed",
    "Prompt",
    "Reminder",
    "model_of",
    "scripted",
    "server_of",
]
