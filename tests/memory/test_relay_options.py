"""Options and arguments of a relay, and which of them are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from holdfast.consumers.memory import KnowledgeStoreOutboxRelay, RelayOptions
from holdfast.memory.knowledge import KnowledgeStore
from holdfast.memory.observation import ObservationStore


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": None},
        {"max_attempts": 0},
        {"poll_interval": timedelta(0)},
        {"claim_duration": None},
        {"claim_duration": 60},
        {"node_id": " "},
        {"node_id": None},
    ],
)
def test_invalid_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|node_id must not be empty"):
        RelayOptions(**wrong)  # type: ignore[arg-type]


def test_the_defaults_are_those_of_the_contract() -> None:
    options = RelayOptions.defaults()
    assert (
        options.batch_size,
        options.claim_duration,
        options.poll_interval,
        options.max_attempts,
    ) == (
        32,
        timedelta(seconds=60),
        timedelta(milliseconds=500),
        10,
    )
    assert options.node_id.startswith("node-")


async def test_a_relay_without_a_store_or_a_name_is_refused(
    observations: ObservationStore, knowledge: KnowledgeStore
) -> None:
    for wrong in [
        (None, knowledge),
        (observations, None),
        (observations, knowledge, " "),
        (observations, knowledge, None),
    ]:
        with pytest.raises(ValueError, match="a relay needs"):
            KnowledgeStoreOutboxRelay(*wrong)  # type: ignore[arg-type]


async def test_relays_of_one_process_have_node_ids_of_their_own(
    observations: ObservationStore, knowledge: KnowledgeStore
) -> None:
    relays = [KnowledgeStoreOutboxRelay(observations, knowledge) for _ in range(2)]
    assert relays[0].options.node_id != relays[1].options.node_id
    named = RelayOptions(node_id="mine")
    assert KnowledgeStoreOutboxRelay(observations, knowledge, options=named).options is named
