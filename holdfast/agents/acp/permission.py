"""Permissions that a program asks for, as questions to people."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

from holdfast.agents.acp.jsonrpc import Object
from holdfast.agents.acp.session import digest

CANCELLED: Object = {"outcome": {"outcome": "cancelled"}}
LONGEST_DETAIL = 2000
"""Characters of a tool call that a question shows."""


@dataclass(frozen=True)
class Permission:
    """A request of a program to call a tool, with the options it offers."""

    call: Object
    options: list[Object]

    @classmethod
    def of(cls, params: Object) -> Permission:
        return cls(params.get("toolCall") or {}, params.get("options") or [])

    @cached_property
    def digest(self) -> str:
        """Hash that is the same for calls with exactly the same arguments and content."""
        fields = ("title", "kind", "rawInput", "content")
        return digest(json.dumps({name: self.call.get(name) for name in fields}, sort_keys=True))

    @property
    def labels(self) -> list[str]:
        return [str(option.get("name")) for option in self.options]

    @property
    def question(self) -> str:
        """A description for the people who decide."""
        title = f"**{self.call.get('title') or 'May I go on?'}**"
        text = self._details()
        if len(text) > LONGEST_DETAIL:
            text = f"{text[:LONGEST_DETAIL]}\n… and {len(text) - LONGEST_DETAIL} more characters"
        return f"{title}\n```\n{text}\n```" if text else title

    def outcome(self, label: object) -> Object:
        """Return the answer to the program. A label that was not offered is a refusal."""
        chosen = [one for one in self.options if one.get("name") == label] or [
            one for one in self.options if str(one.get("kind")).startswith("reject")
        ]
        if not chosen:
            return CANCELLED
        return {"outcome": {"outcome": "selected", "optionId": chosen[0].get("optionId")}}

    def _details(self) -> str:
        found = [detail for item in self.call.get("content") or [] if (detail := _detail(item))]
        if not found and self.call.get("rawInput"):
            return json.dumps(self.call["rawInput"], indent=2, ensure_ascii=False)
        return "\n".join(found)


def _detail(item: Object) -> str:
    """Return the text of a content item, or the change that it makes to a file."""
    if item.get("type") != "diff":
        return text_of(item)
    old = [f"- {line}" for line in str(item.get("oldText") or "").splitlines()]
    new = [f"+ {line}" for line in str(item.get("newText") or "").splitlines()]
    return "\n".join([str(item.get("path")), *old, *new])


def text_of(holder: Object) -> str:
    """Return the text of a content block; '' for other kinds."""
    content = holder.get("content")
    return str(content.get("text") or "") if isinstance(content, dict) else ""
