"""Memory of a language model: memories in the prompt, and tools to search and to add more."""

from __future__ import annotations

from pydantic_ai import RunContext, Tool, ToolDefinition

from holdfast.agents.llm.context import Context
from holdfast.agents.llm.durability import NO_STEP
from holdfast.errors import HoldfastError
from holdfast.memory import NoMemory

NOTHING = "nothing is known of it"


async def read_memories(context: Context) -> str:
    """Return memories that relate to the message, for the prompt; '' for an agent without
    memory."""
    memory = context.turn.memory
    if isinstance(memory, NoMemory) or not memory.relevant:
        return ""
    return "\n".join(
        ["What you remember that may bear on this:", *(f"- {line}" for line in memory.relevant)]
    )


async def memory_search(context: RunContext[Context], query: str) -> str:
    """Look for what you remember that bears on a question."""
    try:
        return "\n".join(await context.deps.turn.memory.search(query)) or NOTHING
    except HoldfastError as error:
        return str(error)


async def memory_recall(context: RunContext[Context]) -> str:
    """Recall what was last observed about the person who asks."""
    return "\n".join(await context.deps.turn.memory.recall()) or NOTHING


async def observe(context: RunContext[Context], content: str) -> str:
    """Remember a fact about the person who asks, in one sentence, for later conversations."""
    context.deps.turn.memory.observe(content)
    return "noted"


async def _offer_with_memory(
    context: RunContext[Context], definition: ToolDefinition
) -> ToolDefinition | None:
    """Hide the memory tools from an agent without memory."""
    return None if isinstance(context.deps.turn.memory, NoMemory) else definition


TOOLS: tuple[Tool[Context], ...] = (
    Tool(memory_search, takes_ctx=True, prepare=_offer_with_memory),
    Tool(memory_recall, takes_ctx=True, prepare=_offer_with_memory),
    # The turn itself keeps observations until it ends: each attempt has to observe again.
    Tool(observe, takes_ctx=True, prepare=_offer_with_memory, metadata=NO_STEP),
)
