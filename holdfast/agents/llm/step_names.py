"""Names of the steps of a run. They are persisted: a changed name runs its step again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperationId,
    JournalOperationNamer,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)

OWN_TOOLS = "<agent>"
"""Id of the toolset with the tools that an agent was given as functions."""


class StepNames(JournalOperationNamer):
    """Names operations for people: `writer: model request`, `writer: tool look_up`."""

    def __init__(self, agent: str, default_model: str | None) -> None:
        super().__init__(agent, default_model_id=default_model or "default")
        self._agent = agent
        self._default_model = default_model

    def operation_name(self, operation_id: DurableOperationId) -> str:
        return self._name(operation_id, "*")

    # pydantic-ai does not export the type of such a name.
    def invocation_name(self, operation_id: DurableOperationId, *, label: str | None) -> Any:
        name = super().invocation_name(operation_id, label=label)
        return replace(name, operation_name=self._name(operation_id, label or "*"))

    def _name(self, operation_id: DurableOperationId, tool: str) -> str:
        match operation_id:
            case ModelRequestId(model_id=model):
                # The same name with and without a stream: a later attempt may do it the other way.
                text = f"model request{self._other_model(model)}"
            case ModelCompactMessagesId(model_id=model):
                text = f"compact messages{self._other_model(model)}"
            case ModelCancelSuspendedResponseId(model_id=model):
                text = f"cancel response{self._other_model(model)}"
            case ToolsetCallToolId(toolset_id=toolset):
                text = f"tool {_qualified_name(toolset, tool)}"
            case ToolsetValidateToolArgumentsId(toolset_id=toolset):
                text = f"arguments of {_qualified_name(toolset, tool)}"
            case ToolsetGetToolsId(toolset_id=toolset):
                text = f"tools of {toolset}"
            case ToolsetGetInstructionsId(toolset_id=toolset):
                text = f"instructions of {toolset}"
            case CapabilityOperationId(capability_id=capability, operation=operation):
                text = f"{capability}.{operation}"
            case _:
                return super().operation_name(operation_id)
        return f"{self._agent}: {text}"

    def _other_model(self, model: str | None) -> str:
        return "" if model in (None, self._default_model) else f" ({model})"


def _qualified_name(toolset: str, tool: str) -> str:
    return tool if toolset == OWN_TOOLS else f"{toolset}.{tool}"
