"""A run judges every case with every contender, and can be taken up again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from labelled import CALM, HOSTILE, case, cases, open_fake
from scripted_judges import ATTACK, NORMAL, ScriptedJudge, ScriptedProvider

from promptguard.config import ControllerConfig, EndpointConfig, PromptGuardConfig, Settings
from promptguard.conversation import Message, Role
from promptguard.core.neutrosophic import Neutrosophic
from promptguard.errors import DataError, EvaluationError, InputError
from promptguard.evaluation import PromptGuard
from promptguard.evaluators.llm import LlmJudge
from promptguard.protocols import LayerJudgement, LayerTask
from promptguard.runs.report import Manifest
from promptguard.usage import Usage
from promptguard.validation.contenders import Contender, Openers, Outcomes, dissected, engine
from promptguard.validation.dataset import Case, Dataset
from promptguard.validation.judging import prompts_of
from promptguard.validation.runner import RunJournal, manifest_of, run_cases

STRICT = Settings(conversation=ControllerConfig(preset="strict"))
ENGINE = engine("engine", STRICT)
TYPES = {
    "ayni_relational": Neutrosophic(0.2, 0.3, 0.8),
    "relational_structure": Neutrosophic(0.7, 0.2, 0.3),
}


def scripted(config: PromptGuardConfig) -> PromptGuard:
    return PromptGuard(config, judges=[ScriptedJudge(TYPES)])


OPENERS = Openers(judge=open_fake, guard=scripted)


def run(given: tuple[Case, ...], *contenders: Contender, jobs: int = 1) -> Outcomes:
    return run_cases(given, contenders or (ENGINE,), jobs=jobs, openers=OPENERS)


def steady(outcomes: Outcomes) -> list[object]:
    """Return outcomes without what depends on the clock."""
    return [replace(outcome, turn_ms=()) for found in outcomes.values() for outcome in found]


def test_the_engine_is_judged_by_its_highest_risk_and_first_flag() -> None:
    """An outcome holds the whole trajectory."""
    attack = case(0, CALM, HOSTILE, HOSTILE, is_attack=True)
    (found,) = run((attack,))["engine"]
    assert found.score == max(found.risks)
    assert found.is_flagged
    assert found.turns == 3
    assert len(found.turn_ms) == 3
    assert dict(found.nats)


def test_jobs_change_nothing() -> None:
    """Two processes find what one finds, in the same order."""
    given = cases(40)
    assert steady(run(given, jobs=2)) == steady(run(given))


def test_what_cannot_be_judged_is_an_error_in_its_place() -> None:
    """A case without a turn fails alone."""
    empty = replace(case(1), messages=(Message(role=Role.SYSTEM, content="x"),))
    found = run((case(0), empty, case(2)))["engine"]
    assert [bool(outcome.error) for outcome in found] == [False, True, False]


def test_a_judge_that_fails_is_an_error_and_not_a_pass() -> None:
    """Could not judge is never safe."""

    def failing(config: PromptGuardConfig) -> PromptGuard:
        return PromptGuard(config, judges=[ScriptedJudge(default=EvaluationError("down"))])

    asked = Contender(name="asked", settings=PromptGuardConfig())
    (found,) = run_cases((case(0),), (asked,), openers=Openers(guard=failing))["asked"]
    assert "down" in found.error


def test_a_dissection_names_the_parts_and_every_merge() -> None:
    """Engine, rules, model, each evaluation type, each strategy."""
    names = [contender.name for contender in dissected(STRICT)]
    assert names[:5] == ["engine", "rules", "model", "ayni_relational", "relational_structure"]
    assert set(names[5:]) == {
        "ensemble/max_falsehood", "ensemble/average", "ensemble/voting", "ensemble/weighted",
    }  # fmt: skip


def test_every_merge_is_what_the_guard_itself_would_say() -> None:
    """One evaluation serves all strategies, and gives what each alone would have given."""
    given = (case(0, CALM, HOSTILE, is_attack=True),)
    contenders = tuple(c for c in dissected(STRICT) if isinstance(c.settings, PromptGuardConfig))
    shared = run(given, *contenders)
    for contender in contenders:
        assert isinstance(contender.settings, PromptGuardConfig)
        guard = scripted(contender.settings)
        metrics = guard.evaluate_sync(CALM)
        guard.close_sync()
        (found,) = shared[contender.name]
        assert found.score == pytest.approx(metrics.worst.falsehood)
        assert found.is_flagged == (metrics.decision == "block")


def test_cost_and_tool_content_are_judged_too() -> None:
    """Each turn is asked with its tool content, and what it cost is kept."""
    judge = ScriptedJudge({"ayni_relational": NORMAL}, default=ATTACK)
    said = (Message(role=Role.USER, content=CALM), Message(role=Role.TOOL, content=HOSTILE))
    asked = Contender(name="asked", settings=PromptGuardConfig(evaluation_type="ayni_relational"))
    openers = Openers(guard=lambda config: PromptGuard(config, judges=[judge]))
    (found,) = run_cases((replace(case(0), messages=said),), (asked,), openers=openers)["asked"]
    assert {task.content for task in judge.asked} == {CALM, HOSTILE}
    assert found.cost_usd == pytest.approx(0.02)


def test_a_turn_without_words_counts_as_a_turn() -> None:
    """The turn that was flagged is one of those counted, also where a message was a picture."""
    said = tuple(Message(role=Role.USER, content=text) for text in (CALM, "", HOSTILE))
    judge = ScriptedJudge(default=ATTACK)
    asked = Contender(name="asked", settings=PromptGuardConfig(evaluation_type="ayni_relational"))
    openers = Openers(guard=lambda config: PromptGuard(config, judges=[judge]))
    (found,) = run_cases((replace(case(0), messages=said[1:]),), (asked,), openers=openers)["asked"]
    assert (found.risks, found.flagged_turn, found.turns) == ((0.0, 0.9), 2, 2)
    (found,) = run_cases((replace(case(0), messages=said),), (asked,), openers=openers)["asked"]
    assert (found.risks, found.flagged_turn) == ((0.9, 0.0, 0.9), 1)


def test_a_prompt_is_judged_under_every_system_message_before_it() -> None:
    """A record may hold several, and the engine is given all of them."""
    roles = (Role.SYSTEM, Role.SYSTEM, Role.USER, Role.SYSTEM, Role.USER)
    said = tuple(Message(role=role, content=str(n)) for n, role in enumerate(roles))
    prompts = [prompt for _, prompt in prompts_of(replace(case(0), messages=said))]
    assert [prompt.system for prompt in prompts] == ["0\n1", "0\n1\n3"]
    (alone,) = prompts_of(replace(case(0), messages=said[2:3]))
    assert alone[1].system is None


class Settling(ScriptedJudge):
    """Answers by the text it is shown."""

    def __init__(self, by_text: dict[str, Neutrosophic], *, threshold: float) -> None:
        super().__init__()
        self._by_text, self.decision_threshold = by_text, threshold

    async def judge(self, task: LayerTask) -> LayerJudgement:
        return replace(await super().judge(task), value=self._by_text[task.content])


def test_each_layer_is_held_to_the_threshold_of_who_judged_it() -> None:
    """A cascade blocks by the layer whose own judge finds an attack, be it not the falsest."""
    first = Settling(
        {CALM: Neutrosophic(0.3, 0.9, 0.3), HOSTILE: Neutrosophic(0.3, 0.1, 0.55)}, threshold=0.5
    )
    second = Settling({CALM: Neutrosophic(0.3, 0.1, 0.6)}, threshold=0.7)
    said = (Message(role=Role.USER, content=CALM), Message(role=Role.TOOL, content=HOSTILE))
    config = PromptGuardConfig(evaluation_type="ayni_relational", mode="cascade")

    def opened(config: PromptGuardConfig) -> PromptGuard:
        return PromptGuard(config, judges=[first, second])

    asked = Contender(name="asked", settings=config)
    given = (replace(case(0), messages=said),)
    (found,) = run_cases(given, (asked,), openers=Openers(guard=opened))["asked"]
    guard = opened(config)
    metrics = guard.evaluate_sync(user=(CALM, HOSTILE))
    guard.close_sync()
    assert (metrics.decision, found.is_flagged, found.score) == ("block", True, 0.6)


def test_a_type_that_failed_costs_only_the_contenders_that_ask_it() -> None:
    """Where partial answers count, the other types were judged."""
    judge = ScriptedJudge({"relational_structure": EvaluationError("down")}, default=ATTACK)
    contenders = tuple(
        Contender(
            name=kind, settings=PromptGuardConfig(evaluation_type=kind, on_partial="continue")
        )
        for kind in ("ayni_relational", "relational_structure")
    )
    openers = Openers(guard=lambda config: PromptGuard(config, judges=[judge]))
    found = run_cases((case(0),), contenders, openers=openers)
    assert [found[one.name][0].is_flagged for one in contenders] == [True, False]
    assert [bool(found[one.name][0].error) for one in contenders] == [False, True]


def test_a_case_that_could_not_be_judged_has_its_cost() -> None:
    """Answers without a verdict are paid for."""
    judge = LlmJudge(ScriptedProvider(["no", "no"]))
    asked = Contender(name="asked", settings=PromptGuardConfig(evaluation_type="ayni_relational"))
    openers = Openers(guard=lambda config: PromptGuard(config, judges=[judge]))
    (found,) = run_cases((case(0),), (asked,), openers=openers)["asked"]
    assert "no verdict" in found.error
    assert found.cost_usd == pytest.approx(0.004)


@pytest.mark.parametrize(("unpriced", "factor"), [(0, 1.0), (1, None)])
def test_each_evaluation_type_costs_what_it_alone_cost(unpriced: int, factor: float | None) -> None:
    """Types that are asked together are not charged for one another; unknown stays unknown."""
    both = ("ayni_relational", "relational_structure")
    contenders = [
        Contender(name=name, settings=PromptGuardConfig(evaluation_type=kinds))
        for name, kinds in (("one", both[0]), ("other", both[1]), ("both", both))
    ]
    judge = ScriptedJudge(usage=Usage(calls=2, cost_usd=0.01, unpriced_calls=unpriced))
    openers = Openers(guard=lambda config: PromptGuard(config, judges=[judge]))
    found = run_cases((case(0),), tuple(contenders), openers=openers)
    costs = {name: item.cost_usd for name, (item,) in found.items()}
    expected = {"one": 0.01, "other": 0.01, "both": 0.02}
    assert costs == {name: factor and pytest.approx(cost) for name, cost in expected.items()}


def manifest(given: tuple[Case, ...], *, seed: int = 0) -> Manifest:
    return manifest_of(Dataset(cases=given), (ENGINE,), seed=seed)


def test_a_journal_takes_the_run_up_where_it_stopped(tmp_path: Path) -> None:
    """Cases in the journal are not judged again; a torn line is."""
    given, path = cases(20), tmp_path / "outcomes.jsonl"

    class Stopped(Exception):
        pass

    def stop(done: int) -> None:
        if done == 7:
            raise Stopped

    with pytest.raises(Stopped):
        run_cases(
            given,
            (ENGINE,),
            openers=OPENERS,
            journal=RunJournal(tmp_path, manifest(given)),
            on_case=stop,
        )
    path.write_bytes(path.read_bytes() + b'[{"index": 7, "cont')
    done: list[int] = []
    again = run_cases(
        given,
        (ENGINE,),
        openers=OPENERS,
        journal=RunJournal(tmp_path, manifest(given), resume=True),
        on_case=done.append,
    )
    assert done[0] == 7
    assert done[-1] == 20
    assert steady(again) == steady(run(given))


def test_a_journal_of_another_run_is_refused(tmp_path: Path) -> None:
    """Other data, settings or seeds do not mix."""
    given = cases(4)
    run_cases(given, (ENGINE,), openers=OPENERS, journal=RunJournal(tmp_path, manifest(given)))
    other = RunJournal(tmp_path, manifest(given, seed=9), resume=True)
    with pytest.raises(InputError, match="seed"):
        run_cases(given, (ENGINE,), openers=OPENERS, journal=other)


def test_the_same_files_read_by_other_fields_are_other_data() -> None:
    """Outcomes of other texts under the same ids are not taken for those of these."""
    assert manifest((case(0, CALM, id="a"),)) != manifest((case(0, HOSTILE, id="a"),))


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    """A whole line that no run wrote is an error, not a result."""
    given, path = cases(2), tmp_path / "outcomes.jsonl"
    run_cases(given, (ENGINE,), openers=OPENERS, journal=RunJournal(tmp_path, manifest(given)))
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    with pytest.raises(DataError):
        run_cases(
            given,
            (ENGINE,),
            openers=OPENERS,
            journal=RunJournal(tmp_path, manifest(given), resume=True),
        )


def test_the_manifest_names_data_settings_and_versions() -> None:
    """Enough to make the run again; no path of this machine."""
    found = manifest(cases(3))
    assert found.contenders[0].name == "engine"
    assert dict(found.versions)["numpy"] != "absent"
    assert found.contenders[0].weights
    assert found != manifest(cases(4))


def test_the_manifest_holds_no_password() -> None:
    """A report is published, and addresses of stores and endpoints may name a user."""
    endpoint = EndpointConfig(base_urls={"own": "https://me:hunter2@host/v1"})
    whole = ControllerConfig(store="postgresql://me:hunter2@db/x", endpoint=endpoint)
    asked = PromptGuardConfig(models=("http://me:hunter2@host/v1#m",), endpoint=endpoint)
    contenders = tuple(Contender(name=str(n), settings=one) for n, one in enumerate((whole, asked)))
    found = manifest_of(Dataset(cases=cases(1)), contenders, seed=0)
    for one in found.contenders:
        assert "hunter2" not in one.settings
        assert "https://host/v1" in one.settings
