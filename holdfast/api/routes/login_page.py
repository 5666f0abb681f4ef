"""Small pages of the login: a confirmation, or the reason of a refusal."""

from __future__ import annotations

from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.api.security.caller import Caller
from holdfast.store.credentials import Credential

# Without the referrer policy `same-origin`, the form would send `Origin: null`, which the guard
# refuses.
PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <meta name="color-scheme" content="light dark">
    <meta name="referrer" content="same-origin">
    <title>{title} · Holdfast</title>
    <link rel="icon" href="/static/icon.svg" type="image/svg+xml">
    <script src="/static/theme.js"></script>
    <link rel="stylesheet" href="/static/tokens.css">
    <link rel="stylesheet" href="/static/base.css">
    <link rel="stylesheet" href="/static/overlay.css">
  </head>
  <body>
    <main class="state-box">
      <img src="/static/icon.svg" alt="" width="44" height="44">
      <h1>{title}</h1>
      <p>{text}</p>
{form}    </main>
  </body>
</html>
"""
FORM = """      <form method="post" action="/login">
        <input type="hidden" name="code" value="{code}">
        <button class="button primary" type="submit">Log in as {name}</button>
      </form>
"""


PROVIDER = """      <p><a class="button primary" href="/login/oidc">Log in with your account</a></p>
"""


def wants_html(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def refusal(text: str, status: int = 401, *, has_provider: bool = False) -> HTMLResponse:
    """Return a page that says why the login failed and what to do."""
    return _page("Not logged in", _with_code(text), PROVIDER if has_provider else "", status=status)


def confirmation(code: str, found: Credential, caller: Caller | None) -> HTMLResponse:
    """Return a page that asks for confirmation of a login."""
    who = f"as {found.name} (role {found.role})"
    text = f"A link asks to log this browser in {who}. Go on only if you expected that."
    if caller is not None:
        text = (
            f"You are logged in as {caller.name} (role {caller.role})."
            f" The link would log you in {who} instead."
        )
    form = FORM.format(code=escape(code, quote=True), name=escape(found.name))
    return _page("Log in?", escape(text), form)


def _page(title: str, text: str, form: str = "", *, status: int = 200) -> HTMLResponse:
    return HTMLResponse(PAGE.format(title=escape(title), text=text, form=form), status)


def _with_code(text: str) -> str:
    """Escape a text and turn text in backquotes into code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if nth % 2 else part for nth, part in enumerate(parts))
