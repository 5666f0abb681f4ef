"""What a language model remembers: told with the prompt, and tools to look for more and to observe."""

from __future__ import annotations

from pydantic_ai import RunContext, Tool, ToolDefinition

from holdfast.agents.llm.context import Context
from holdfast.errors import HoldfastError
from holdfast.memory import NoMemory

NOTHING = "nothing is known of it"


async def remembered(context: Context) -> str:
    """What bears on the message, for the prompt; nothing for an agent without memory."""
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


async def _where_remembered(
    context: RunContext[Context], definition: ToolDefinition
) -> ToolDefinition | None:
    """The tools are not offered to an agent without memory."""
    return None if isinstance(context.deps.turn.memory, NoMemory) else definition


TOOLS: tuple[Tool[Context], ...] = tuple(
    Tool(function, takes_ctx=True, prepare=_where_remembered)
    for function in (memory_search, memory_recall, observe)
)
