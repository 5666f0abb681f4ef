"""A small server of the Model Context Protocol with one tool, run as a program.

With the argument `dies`, it ends when its tool is called; with `hangs`, it answers nothing; with
`counts FILE NUMBER`, it counts calls in a file and hangs in the one with this number."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOL = {
    "name": "shout",
    "description": "Say it loud.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


def hang() -> None:
    time.sleep(600)


def wait_for_end() -> None:
    """Hang until the client closes the pipe, so that no server outlives its client."""
    select.select([sys.stdin], [], [], 600)


def count(path: str, hang_in: int, hang: Callable[[], None] = hang) -> str:
    """Add the number of this call to a file and return it; hang in the one that is named."""
    file = Path(path)
    number = len(file.read_text().split()) + 1 if file.exists() else 1
    with file.open("a") as lines:
        lines.write(f"{number}\n")
    if number == hang_in:
        hang()
    return str(number)


def result(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "shouter", "version": "1"}
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": info,
        }
    if method == "tools/list":
        return {"tools": [TOOL]}
    if method == "tools/call":
        if "dies" in sys.argv:
            sys.exit(1)
        if "counts" in sys.argv:
            number = count(sys.argv[-2], int(sys.argv[-1]), wait_for_end)
            return {"content": [{"type": "text", "text": number}], "isError": False}
        if params["arguments"]["text"] == "refuse":
            return {"content": [{"type": "text", "text": "no refusing"}], "isError": True}
        secrets = [name for name in os.environ if name.startswith("SECRET")]
        return {
            "content": [
                {"type": "text", "text": f"{params['arguments']['text'].upper()} {secrets}"}
            ],
            "isError": False,
        }
    return {}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked and "hangs" not in sys.argv:
            given = result(asked["method"], asked.get("params") or {})
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": given}), flush=True)
