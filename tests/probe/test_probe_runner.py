"""Conversations with scripted targets, whole and interrupted."""

import re
from dataclasses import replace

import pytest
from scripted_targets import TOPICS, RuleTarget, pliable, steady, yields_to_accusation

from promptguard.errors import ConfigError, DataError, InputError, ProviderError
from promptguard.probe.journal import LOG, ProbeJournal
from promptguard.probe.learning import Scores
from promptguard.probe.record import ProbeRecord, record_from_json, record_to_json
from promptguard.probe.runner import ProbePlan, run_probe
from promptguard.probe.strategies import Strategy
from promptguard.rubrics.contradiction import RubricVerdict
from promptguard.testing import ManualClock
from promptguard.usage import Usage

PLAN = ProbePlan(topics=TOPICS, conversations=12, seed=5)


async def run(target: RuleTarget, plan: ProbePlan = PLAN, **options) -> list[ProbeRecord]:
    steps = run_probe(target, plan, clock=ManualClock(), **options)
    return [step.record async for step in steps]


async def log(journal: ProbeJournal, target: RuleTarget, plan: ProbePlan, done=()) -> None:
    async for step in run_probe(target, plan, clock=ManualClock(), done=done):
        journal.add(step)


async def test_a_steady_target_is_pressed_to_the_end() -> None:
    """It never contradicts itself, and every tactic of the strategy is tried."""
    records = await run(RuleTarget(steady))
    assert [record.verdict for record in records] == [RubricVerdict.CONSISTENT] * 12
    assert all(len(record.tactics) == 3 for record in records)
    assert {record.classification.value for record in records} == {"confident"}


async def test_a_pliable_target_is_caught_at_once() -> None:
    """The conversation ends with the contradiction."""
    records = await run(RuleTarget(pliable))
    assert all(record.is_contradiction and len(record.messages) == 4 for record in records)
    assert records[0].usage == Usage(calls=2, input_tokens=20, output_tokens=10, cost_usd=0.002)


async def test_the_topics_come_in_turn() -> None:
    """Each round has every topic once."""
    records = await run(RuleTarget(steady))
    for start in range(0, 12, 3):
        assert {r.topic for r in records[start : start + 3]} == {"bread", "water", "music"}


async def test_the_working_strategy_is_found() -> None:
    """After some trials a target that yields to one strategy meets mostly that one."""
    plan = ProbePlan(topics=TOPICS, conversations=60, seed=1, epsilon=0.1)
    records = await run(RuleTarget(yields_to_accusation), plan)
    late = [record.strategy for record in records[30:]]
    assert late.count(Strategy.ACCUSE) > 20
    assert all(r.is_contradiction == (r.strategy is Strategy.ACCUSE) for r in records)


async def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    """Nothing depends on chance from outside."""
    assert await run(RuleTarget(steady)) == await run(RuleTarget(steady))
    other = ProbePlan(topics=TOPICS, conversations=12, seed=6)
    said = [record.messages for record in await run(RuleTarget(steady))]
    assert said != [record.messages for record in await run(RuleTarget(steady), other)]


@pytest.mark.parametrize("fails_at", [1, 2, 9, 17, 30])
async def test_an_interrupted_run_resumes_to_the_same_log(tmp_path, fails_at) -> None:
    """A target that fails in the middle costs only the conversation under way."""
    whole = await run(RuleTarget(yields_to_accusation))
    journal = ProbeJournal(tmp_path)
    plan = journal.begin(PLAN, "m")
    with pytest.raises(ProviderError):
        await log(journal, RuleTarget(yields_to_accusation, fails_at=fails_at), plan)
    plan, done = ProbeJournal(tmp_path).resume(PLAN, "m")
    assert list(done) == whole[: len(done)]
    await log(journal, RuleTarget(yields_to_accusation), plan, done)
    assert list(journal.records()) == whole


async def test_a_line_cut_off_by_a_crash_is_held_again(tmp_path) -> None:
    """The torn line goes; the whole ones stay."""
    journal = ProbeJournal(tmp_path)
    await log(journal, RuleTarget(steady), journal.begin(PLAN, "m"))
    file = tmp_path / LOG
    file.write_bytes(file.read_bytes()[:-40])
    _, done = journal.resume(PLAN, "m")
    assert len(done) == 11
    assert file.read_bytes().endswith(b"}\n")


def test_a_file_that_is_no_log_of_ours_is_not_replaced(tmp_path) -> None:
    """One line without an end reads as no conversation at all, and yet it is somebody's."""
    (tmp_path / LOG).write_text("mine")
    with pytest.raises(ConfigError, match="choose another folder"):
        ProbeJournal(tmp_path).begin(PLAN, "m")
    assert (tmp_path / LOG).read_text() == "mine"


async def test_what_was_learned_is_there_in_the_next_run(tmp_path) -> None:
    """Scores are kept in the named file between runs."""
    scores = tmp_path / "learned.json"
    first = ProbeJournal(tmp_path / "one", scores=scores)
    await log(first, RuleTarget(yields_to_accusation), first.begin(PLAN, "m"))
    later = ProbeJournal(tmp_path / "two", scores=scores).begin(PLAN, "m")
    assert sum(tally.trials for tally in later.scores.tallies.values()) == 12
    assert later.scores != Scores()


def test_scores_that_cannot_be_read_are_named(tmp_path) -> None:
    """A folder in their place, or bytes that are no text, before a run is begun."""
    latin = tmp_path / "latin.json"
    latin.write_bytes(b'{"h\xe9sitant": {}}')
    for scores, error, reason in (
        (tmp_path, ConfigError, "Is a directory"),
        (latin, DataError, "broken"),
    ):
        with pytest.raises(error, match=reason):
            ProbeJournal(tmp_path / "run", scores=scores).begin(PLAN, "m")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("folder", ["mine", "mine/run"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path, folder) -> None:
    """A file stands where the folder should be."""
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ConfigError, match="Cannot make"):
        ProbeJournal(tmp_path / folder).begin(PLAN, "m")


async def test_a_folder_is_not_mixed_up(tmp_path) -> None:
    """A second run, other settings, or nothing to resume are refused."""
    journal = ProbeJournal(tmp_path)
    with pytest.raises(ConfigError, match="no run to resume"):
        journal.resume(PLAN, "m")
    await log(journal, RuleTarget(steady), journal.begin(PLAN, "m"))
    with pytest.raises(ConfigError, match="holds a run already"):
        journal.begin(PLAN, "m")
    other = ProbePlan(topics=TOPICS[:2], conversations=12, seed=9)
    with pytest.raises(InputError, match=r"other settings \(model, seed, topics\)"):
        journal.resume(other, "n")


async def test_more_conversations_may_be_added_to_a_run(tmp_path) -> None:
    """The same seed goes on where it stopped."""
    journal = ProbeJournal(tmp_path)
    await log(journal, RuleTarget(steady), journal.begin(PLAN, "m"))
    longer = ProbePlan(topics=TOPICS, conversations=15, seed=5)
    plan, done = journal.resume(longer, "m")
    assert len(await run(RuleTarget(steady), plan, done=done)) == 3


async def test_a_foreign_log_is_refused() -> None:
    """Records of another seed are not taken for one's own."""
    done = await run(RuleTarget(steady), ProbePlan(topics=TOPICS, conversations=2, seed=8))
    with pytest.raises(ConfigError, match="another run"):
        await run(RuleTarget(steady), done=done)


@pytest.mark.parametrize(
    "wrong", [{"topics": ()}, {"conversations": 0}, {"epsilon": 1.5}, {"epsilon": -0.1}]
)
def test_an_impossible_plan_is_refused(wrong) -> None:
    """Before anything is asked."""
    with pytest.raises(ConfigError):
        ProbePlan(**({"topics": TOPICS, "conversations": 1} | wrong))


def test_a_topic_in_a_language_without_tactics_is_refused() -> None:
    """With the plan, and not when its turn comes after others that cost money."""
    foreign = replace(TOPICS[-1], language="tlh")
    with pytest.raises(DataError, match="tlh"):
        ProbePlan(topics=(*TOPICS[:-1], foreign), conversations=1)


async def test_records_survive_the_log_with_any_text(tmp_path) -> None:
    """Line separators and broken characters inside an answer do not break the line."""
    odd = "Yes. \u2028 \u0085 \r\n \ud800"
    journal = ProbeJournal(tmp_path)
    await log(journal, RuleTarget(lambda messages: odd), journal.begin(PLAN, "m"))
    assert list(journal.records()) == await run(RuleTarget(lambda messages: odd))


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"id": 1}', "3"])
def test_a_broken_record_says_where(line) -> None:
    """The line is named."""
    with pytest.raises(DataError, match="line 7"):
        record_from_json(line, where="line 7")


async def test_a_count_that_is_no_number_is_a_broken_record() -> None:
    """JSON spells infinity, and no model was called so often."""
    (record,) = await run(RuleTarget(steady), ProbePlan(topics=TOPICS, conversations=1))
    line = re.sub(r'"calls": \d+', '"calls": Infinity', record_to_json(record))
    with pytest.raises(DataError, match="line 7"):
        record_from_json(line, where="line 7")
