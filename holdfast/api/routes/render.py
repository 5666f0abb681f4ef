"""POST /api/render: a Markdown text as HTML that a page can insert."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import Field
from typing_extensions import TypedDict

from holdfast.api.body import Body, read_body
from holdfast.api.markdown import render_html
from holdfast.api.response import JsonResponse
from holdfast.api.route import AuthorizedRoute, route_options

routes = APIRouter(route_class=AuthorizedRoute, tags=["conversations"])


class MarkdownText(Body):
    """A text to render."""

    text: str = Field(description="Markdown; it may be unfinished.")


class RenderedText(TypedDict):
    """The text as HTML without scripts, styles and addresses that a page would load."""

    html: str


@routes.post(
    "/api/render",
    summary="Render a Markdown text",
    **route_options(
        "read",
        RenderedText,
        {"html": "<p>It <strong>works</strong>.</p>\n"},
        body=MarkdownText,
        given={"text": "It **works**."},
    ),
)
async def post_render(request: Request) -> JsonResponse:
    """Return a text as HTML: tables, task lists, links and highlighted code. Its own tags are shown
    as text, and images of other hosts as links. Beyond 128 Ki characters it stays plain."""
    text = await read_body(request, MarkdownText)
    return JsonResponse(RenderedText(html=await render_html(text.text)))
