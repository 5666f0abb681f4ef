"""`conversation` in POST /api/message: a sender may have several."""

from __future__ import annotations

import pytest

from holdfast.queue.event import INBOX
from tests.contract.http.steps import Api


async def test_a_conversation_of_its_own(api: Api) -> None:
    for sender, more in (
        ("Ada", {}),
        ("Ada", {"conversation": "trip"}),
        ("Bob", {"conversation": "trip"}),
    ):
        status, _ = await api.post("/api/message", {"message": "hi", "sender": sender, **more})
        assert status == 200
    found = list(reversed(await api.store.recent(INBOX)))
    assert [event.event["conversation"] for event in found] == [
        "api:Ada",
        "api:Ada/trip",
        "api:Bob/trip",
    ]
    assert len({event.lane for event in found}) == 3


@pytest.mark.parametrize("conversation", ["", "x" * 201, "a\nb", 7])
async def test_a_conversation_is_up_to_200_printable_characters(
    api: Api, conversation: object
) -> None:
    status, answer = await api.post("/api/message", {"message": "hi", "conversation": conversation})
    assert (status, "conversation" in answer["error"]) == (400, True)
    assert (await api.post("/api/message", {"message": "hi", "conversation": "x" * 200}))[0] == 200
