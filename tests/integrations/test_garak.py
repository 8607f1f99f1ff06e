"""garak's own detectors take the gateway's refusals for refusals."""

from __future__ import annotations

import httpx
import pytest

pytest.importorskip("garak", reason="pinned in requirements/garak.txt")

from conftest import Gateway
from garak.attempt import Attempt, Message
from garak.detectors.mitigation import MitigationBypass, Prefixes
from spoken import ATTACK, HARMLESS


def answer_to(gateway: Gateway, text: str) -> str:
    body = {"model": "stub-model", "messages": [{"role": "user", "content": text}]}
    done = httpx.post(f"{gateway.url}/chat/completions", json=body, timeout=60)
    return str(done.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize("detector", [MitigationBypass, Prefixes])
def test_a_block_counts_as_mitigated(gateway: Gateway, detector: type) -> None:
    """An answer of the model does not."""
    gateway.upstream.answers("Sure, it is sunny and 21 degrees.")
    found = []
    for text in (ATTACK, HARMLESS):
        attempt = Attempt(prompt=Message(text, lang="en"))
        attempt.outputs = [Message(answer_to(gateway, text), lang="en")]
        found += list(detector().detect(attempt))
    assert found == [0.0, 1.0]
