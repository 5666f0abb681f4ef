"""System prompts: Jinja templates with the agent, its team and the sender as variables."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, StrictUndefined, TemplateSyntaxError, meta

from holdfast.agents.llm.context import Context
from holdfast.errors import HoldfastError

STANDARD = """\
You are {{ name }}, an agent that answers messages of the channel {{ channel }}.
Today is {{ date }}.
{% if teammates %}
You work with {% for id, mate in teammates.items() -%}
{{ mate }} (@{{ id }}){{ ", " if not loop.last }}{% endfor %}.
To hand work to one of them, write [@id: what to do] in your answer.
{% endif %}
"""
NAMES = (
    "agent",
    "attempt",
    "channel",
    "conversation",
    "date",
    "from_agent",
    "name",
    "sender",
    "team",
    "teammates",
)


class Prompt:
    """A template, checked when it is read. A mistake raises HoldfastError with the line."""

    def __init__(self, text: str = STANDARD, source: str = "the prompt") -> None:
        # Autoescape is off: a prompt is read by a model, not by a browser.
        environment = Environment(
            undefined=StrictUndefined,
            autoescape=False,  # noqa: S701
            trim_blocks=True,
        )
        try:
            self._template = environment.from_string(text)
            unknown = meta.find_undeclared_variables(environment.parse(text)) - {*NAMES}
        except TemplateSyntaxError as error:
            raise HoldfastError(f"{source}:{error.lineno}: {error.message}") from error
        if unknown:
            raise HoldfastError(
                f"{source}: there is no {min(unknown)!r} to write; known are: {', '.join(NAMES)}"
            )

    @classmethod
    def read(cls, path: Path) -> Prompt:
        try:
            return cls(path.read_text(encoding="utf-8"), str(path))
        except (OSError, UnicodeDecodeError) as error:
            raise HoldfastError(f"the prompt {path} cannot be read: {error}") from error

    async def text(self, context: Context) -> str:
        turn = context.turn
        today = (await context.app.store.now()).date()
        return self._template.render(
            agent=turn.agent,
            attempt=turn.attempt,
            channel=turn.channel,
            conversation=turn.conversation,
            date=today.isoformat(),
            from_agent=turn.from_agent,
            name=context.name,
            sender=turn.sender,
            team=turn.team,
            teammates=context.teammates,
        ).strip()
