"""The channel contract, for authors of channels: what a channel must do, as tests.

class TestPost(ChannelContract):
    @pytest.fixture
    async def platform(self) -> AsyncIterator[Platform]:
        async with LocalPost() as post:
            yield PostPlatform(post)

`LocalPost` is a server on loopback that speaks the protocol of the platform, and `PostPlatform`
says how a person uses it. The module needs `pytest_plugins = ["holdfast.testing.fixtures"]` or a
conftest with it, and pytest-asyncio in its automatic mode."""

from __future__ import annotations

import pytest

# Before the import, so that a failed assertion shows its values.
pytest.register_assert_rewrite(
    "holdfast.testing.channels.contract", "holdfast.testing.channels.steps"
)

from holdfast.testing.channels.contract import ChannelContract  # noqa: E402
from holdfast.testing.channels.platform import Platform  # noqa: E402

__all__ = ["ChannelContract", "Platform"]
