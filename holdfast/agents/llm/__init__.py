"""Agents that are language models, by pydantic-ai; imported only where there is one."""

from holdfast.agents.llm.agent import LlmAgent
from holdfast.agents.llm.context import Context, Reminder
from holdfast.agents.llm.model import model_of, scripted
from holdfast.agents.llm.prompt import Prompt
from holdfast.agents.llm.servers import McpServer, McpServerFailed, server_of

__all__ = [
    "Context",
    "LlmAgent",
    "McpServer",
    "McpServerFailed",
    "Prompt",
    "Reminder",
    "model_of",
    "scripted",
    "server_of",
]
