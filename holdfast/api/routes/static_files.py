"""Pages, scripts and styles, read once from this package. No request names a path on disk."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from holdfast.api.response import ApiError
from holdfast.api.route import AuthorizedRoute, route_options

KINDS = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

open_routes = APIRouter(include_in_schema=False)
routes = APIRouter(route_class=AuthorizedRoute, tags=["documentation"])


@dataclass(frozen=True, slots=True)
class Page:
    """A file with its ETag: browsers may keep it, and revalidate it before use."""

    content: bytes
    zipped: bytes
    kind: str
    tag: str

    def answer(self, request: Request) -> Response:
        headers = {"etag": self.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == self.tag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.content, headers=headers, media_type=self.kind)
        headers["content-encoding"] = "gzip"
        return Response(self.zipped, headers=headers, media_type=self.kind)


@cache
def read_pages(package: str = "holdfast.api") -> dict[str, Page]:
    """Read the static files of a package. Returns them by their path below its static folder."""
    return dict(_pages(files(package).joinpath("static")))


def _pages(folder: Traversable, path: str = "") -> Iterator[tuple[str, Page]]:
    for file in folder.iterdir():
        kind = KINDS.get(file.name.rpartition(".")[2])
        if file.is_dir():
            yield from _pages(file, f"{path}{file.name}/")
        elif kind is not None:
            yield f"{path}{file.name}", _page(file.read_bytes(), kind)


def _page(content: bytes, kind: str) -> Page:
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    return Page(content, gzip.compress(content, mtime=0), kind, tag)


@open_routes.get("/")
async def get_index(request: Request) -> Response:
    """Return the chat page. It holds no secret: it asks for data with the session cookie."""
    return read_pages()["index.html"].answer(request)


@open_routes.get("/console")
@open_routes.get("/console/{page:path}")
async def get_console(request: Request) -> Response:
    """Return the operators' console, which finds its page by the address."""
    return read_pages()["console/index.html"].answer(request)


@open_routes.get("/status")
async def get_wall(request: Request) -> Response:
    """Return the status page for a screen on the wall."""
    return read_pages()["console/status.html"].answer(request)


@open_routes.get("/access")
async def get_access() -> Response:
    """Redirect to the console, where this page was moved."""
    return RedirectResponse("/console/access", 308)


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
