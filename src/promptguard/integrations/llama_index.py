"""LlamaIndex: a node postprocessor that drops poisoned passages before they reach the model."""

from __future__ import annotations

from typing import Any

from promptguard.config import ControllerConfig
from promptguard.guard import Guard
from promptguard.integrations.extras import missing
from promptguard.verdict import Action

try:
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
except ImportError as error:
    raise missing("llama-index", error) from None

_DROPPING = frozenset({Action.STRIP, Action.BLOCK})


class GuardPostprocessor(BaseNodePostprocessor):
    """Give it to a query engine as one of its `node_postprocessors`.

    Each passage is judged beside the query. In detect mode nothing is dropped.
    """

    _guard: Guard = PrivateAttr()

    def __init__(
        self, config: ControllerConfig | None = None, *, guard: Guard | None = None, **rest: Any
    ) -> None:
        super().__init__(**rest)
        self._guard = guard or Guard(config)

    @classmethod
    def class_name(cls) -> str:
        """Return the name under which LlamaIndex stores the component."""
        return "PromptguardPostprocessor"

    def _postprocess_nodes(self, nodes: list[Any], query_bundle: Any = None) -> list[Any]:
        task = query_bundle.query_str if query_bundle is not None else ""
        return [node for node in nodes if not self._is_poisoned(node, task)]

    def _is_poisoned(self, node: Any, task: str) -> bool:
        # In detect mode a passage is not even judged, since nobody would see the finding.
        if self._guard.config.mode != "enforce":
            return False
        finding = self._guard.judge_content(node.node.get_content(), task, "document")
        return finding.action in _DROPPING
