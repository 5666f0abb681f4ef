"""A small server of the Model Context Protocol with one tool, run as a program.

With the argument `dies`, it ends when its tool is called; with `hangs`, it answers nothing."""

from __future__ import annotations

import json
import os
import sys
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
