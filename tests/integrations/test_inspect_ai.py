"""The scorer in a real Inspect evaluation."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("inspect_ai", reason="pinned in requirements/integrations.txt")

from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.solver import Generate, TaskState, solver
from spoken import ATTACK, HARMLESS

from promptguard.integrations.inspect_ai import guard_scorer


@solver
def nothing():
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return state

    return solve


async def test_samples_are_scored_by_their_targets(tmp_path: Path) -> None:
    """Two right, and one whose target says otherwise wrong."""
    samples = [
        Sample(input=HARMLESS, target="benign"),
        Sample(input=ATTACK, target="attack"),
        Sample(input=HARMLESS, target="attack"),
    ]
    task = Task(dataset=samples, solver=nothing(), scorer=guard_scorer())
    logs = await eval_async(task, model="mockllm/model", log_dir=str(tmp_path))
    assert logs[0].status == "success"
    scores = [sample.scores["promptguard"] for sample in logs[0].samples]
    assert [score.value for score in scores] == ["C", "C", "I"]
    assert [score.answer for score in scores] == ["benign", "attack", "benign"]
    assert scores[1].explanation
