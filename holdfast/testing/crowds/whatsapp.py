"""A crowd in chats of the local WhatsApp."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from holdfast.testing.crowds import Answer, Crowd
from holdfast.testing.faults import Limit
from holdfast.testing.whatsapp import FakeWhatsApp

FIRST_PERSON = 49_1800_000


class WhatsAppCrowd(Crowd):
    """People, each in their own chat with the number."""

    title = "WhatsApp"
    needs_http = True

    def __init__(self, whatsapp: FakeWhatsApp) -> None:
        super().__init__()
        self._whatsapp = whatsapp

    @property
    def variables(self) -> Mapping[str, str]:
        return self._whatsapp.variables

    def connect(self, address: str) -> None:
        self._whatsapp.webhook_url = f"{address}/whatsapp/webhook"

    async def write(self, thread: int, text: str) -> None:
        person = str(FIRST_PERSON + thread)
        self._whatsapp.people.setdefault(person, f"Person {thread}")
        await self._whatsapp.say(text, user=person)

    async def answers(self) -> Mapping[int, list[Answer]]:
        found: dict[int, list[Answer]] = {thread: [] for thread in self.sent_at}
        for one in self._whatsapp.sent:
            thread = int(one["to"]) - FIRST_PERSON
            found[thread].append(Answer(one["text"]["body"], self._whatsapp.taken_at[one["id"]]))
        return found

    def limit(self) -> None:
        self._whatsapp.faults.limits["send"] = Limit(most=20, seconds=1)
        # Messages of several chats may be under way when the first one is refused.
        self._whatsapp.faults.under_way = 0.5

    @property
    def early_requests(self) -> Counter[str]:
        return self._whatsapp.faults.impatient


@asynccontextmanager
async def whatsapp_crowd() -> AsyncIterator[Crowd]:
    """Start a local Cloud API."""
    async with FakeWhatsApp() as whatsapp:
        yield WhatsAppCrowd(whatsapp)
