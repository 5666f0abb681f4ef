"""Pages, scripts and styles, read once from this package. No request names a path on disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.responses import Response

from holdfast.api.response import ApiError
from holdfast.api.route import AuthorizedRoute, route_options

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

open_routes = APIRouter(include_in_schema=False)
routes = APIRouter(route_class=AuthorizedRoute, tags=["documentation"])


@dataclass(frozen=True, slots=True)
class Page:
    """A file with its ETag: browsers may keep it, and revalidate it before use."""

    content: bytes
    kind: str
    tag: str

    def answer(self, request: Request) -> Response:
        headers = {"etag": self.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.kind)


@cache
def read_pages(package: str = "holdfast.api") -> dict[str, Page]:
    """Read the static files of a package. Returns them by name."""
    found = {}
    for file in files(package).joinpath("static").iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if kind is not None:
            content = file.read_bytes()
            found[file.name] = Page(content, kind, f'"{hashlib.sha256(content).hexdigest()[:16]}"')
    return found


@open_routes.get("/")
async def get_index(request: Request) -> Response:
    """Return the chat page. It holds no secret: it asks for data with the session cookie."""
    return read_pages()["index.html"].answer(request)


@open_routes.get("/access")
async def get_access(request: Request) -> Response:
    """Return the page on tokens and sessions, which holds no secret either."""
    return read_pages()["access.html"].answer(request)


@open_routes.get("/static/{name:path}")
async def get_static(request: Request, name: str) -> Response:
    page = read_pages().get(name)
    if page is None:
        raise ApiError(404, "Not found")
    return page.answer(request)


@routes.get(
    "/docs",
    summary="Show the OpenAPI document",
    response_class=Response,
    **route_options("read", None, None, content="text/html"),
)
async def get_docs(request: Request) -> Response:
    """Return a page that shows the OpenAPI document. It loads nothing from other hosts."""
    return read_pages()["docs.html"].answer(request)
