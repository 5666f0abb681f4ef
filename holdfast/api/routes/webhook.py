"""Webhooks of platforms. Channels check their signatures; our tokens do not apply."""

from __future__ import annotations

from collections.abc import Iterable

from fastapi import FastAPI, Request
from starlette.responses import Response

from holdfast.api.body import read
from holdfast.api.response import JsonResponse
from holdfast.channels.base import Channel, Verification, Webhook


def mount(app: FastAPI, channels: Iterable[Channel]) -> set[str]:
    """Add the paths of all channels. Returns them."""
    found = set()
    for channel in channels:
        for path, receive in channel.webhooks.items():
            app.add_api_route(
                path, _Endpoint(receive).answer, methods=["POST"], include_in_schema=False
            )
            found.add(path)
        for path, verify in channel.verifications.items():
            app.add_api_route(
                path, _Verification(verify).answer, methods=["GET"], include_in_schema=False
            )
    return found


class _Endpoint:
    def __init__(self, receive: Webhook) -> None:
        self._receive = receive

    async def answer(self, request: Request) -> Response:
        return _response(*await self._receive(await read(request), dict(request.headers)))


class _Verification:
    def __init__(self, verify: Verification) -> None:
        self._verify = verify

    async def answer(self, request: Request) -> Response:
        status, text = self._verify(dict(request.query_params))
        # The platform chose the text, so it must never be shown as anything but text.
        return _response(status, text) if status >= 400 else Response(text, media_type="text/plain")


def _response(status: int, text: str) -> Response:
    if status >= 400:
        return JsonResponse({"error": text or "the channel refused the request"}, status)
    return Response(
        text, status, media_type="application/json" if text.startswith("{") else "text/plain"
    )
