"""Programs that speak the Agent Client Protocol, version 1: https://agentclientprotocol.com.

Permissions are asked from people in the conversation; a turn that waits for one holds no process,
and goes on in the same session."""

from __future__ import annotations

from holdfast.agents.acp.agent import AcpAgent
from holdfast.agents.acp.prompt import GO_ON

__all__ = ["GO_ON", "AcpAgent"]
