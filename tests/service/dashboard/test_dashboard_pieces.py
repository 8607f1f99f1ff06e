"""Cards, rows, explanations, labels and reports as HTML."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stored_values import make_entry, make_record, make_stored_turn, make_verdict

from promptguard.conversation import Role
from promptguard.errors import DataError
from promptguard.protocols import SessionLabel
from promptguard.queries import SessionRow
from promptguard.risk.explain import Attribution
from promptguard.risk.weights import SignalWeight, shipped_weights
from promptguard.runs.rendering import headline_rows
from promptguard.runs.report import SCHEMA, read_report
from promptguard.service.dashboard.quality import report_html, shares_of, signal_row
from promptguard.service.dashboard.sessions import LABELS, row_html
from promptguard.service.dashboard.templates import (
    marked,
    nats_text,
    render,
    risk_text,
    turns_in_words,
)
from promptguard.service.dashboard.transcript import (
    cards_of,
    counterfactual,
    points_of,
    reached_html,
    replay_html,
    sentence_html,
    turn_html,
)
from promptguard.service.verdicts import (
    ExplanationView,
    explanation_view,
    replay_view,
    stored_verdict,
)
from promptguard.signals import load_signals
from promptguard.state import (
    Ledger,
    LedgerEntry,
    Lock,
    ModeEntry,
    SessionProfile,
    SessionState,
)
from promptguard.turns.explain import Alone, Explanation
from promptguard.verdict import Action, Evidence, Mode, Span, Verdict

VERDICT = Verdict(
    turn=1,
    turn_risk=0.72,
    message_risk=0.4,
    mode=Mode.CRITICAL,
    action=Action.BLOCK,
    is_hard=True,
    tags=("LLM01",),
    spans=(Span(start=8, end=13, label="intent.harm"),),
    evidence=(Evidence(turn=1, signal="semantic", nats=2.5, reason="<i>harmful</i> 0.9"),),
).to_json()


def explanation(
    last: Verdict, alone: Action = Action.ALLOW, without: tuple[int, ...] | None = None
) -> ExplanationView:
    explanation = Explanation(
        text="x",
        verdict=last,
        attribution=Attribution(
            prior=-3.0, nats=0.0, risk=0.05, entries=(), by_turn=(), by_signal=()
        ),
        entered=(),
        alone=Alone(turn_risk=0.1, mode=Mode.SAFE, action=alone),
        without=without,
        verdicts=(last,),
        is_partial=False,
    )
    return explanation_view("s", explanation)


def state(**changes: object) -> SessionState:
    record = make_record(
        excerpt="Where is <b>my</b> parcel?",
        turn_risk=0.2,
        mode=Mode.CAUTIOUS,
        action=Action.ANNOTATE,
    )
    values = {
        "session_id": "order-17",
        "mode": Mode.CAUTIOUS,
        "recent": (record,),
        "profile": SessionProfile(turns=1),
    }
    return SessionState(**{**values, **changes})  # type: ignore[arg-type]


def test_a_turn_shows_its_verdict_and_escapes_everything() -> None:
    """Text, reasons and tool results are text; the verdict stands beside them."""
    entries = (
        make_entry("<script>hello</script>", verdict=VERDICT),
        make_entry("<iframe>", position=1, role=Role.TOOL),
        make_entry("I can't help with that.", position=2, role=Role.ASSISTANT),
    )
    (card,) = cards_of(entries)
    shown = turn_html(card)
    for part in ("CRITICAL", "blocked", "hard rule", "+2.50", "LLM01", "0.72", ">hello</mark>"):
        assert part in shown
    for part in ("<script>", "<iframe>", "<i>harmful"):
        assert part not in shown
    assert points_of([card])[0].action is Action.BLOCK


def test_only_the_explanation_says_what_a_message_sent_alone_would_get() -> None:
    """The unweighed score of a turn has another name: rules know what came before."""
    (card,) = cards_of((make_entry("hello", verdict=VERDICT),))
    shown = turn_html(card)
    assert "loudest reader or rule</abbr> 0.40" in shown
    assert "message alone<" not in shown


def test_text_that_was_not_kept_is_said_to_be_missing() -> None:
    """Without text the verdict is still shown."""
    (card,) = cards_of((make_entry(None, verdict=VERDICT),))
    assert "Text is not kept." in turn_html(card)
    assert "CRITICAL" in turn_html(card)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"action": "explode"}', '{"mode": "SAFE"}'])
def test_a_verdict_of_another_form_is_left_out(text: str) -> None:
    """A store written by another version does not break the page."""
    assert stored_verdict(make_entry("hi", verdict=text)) is None


def test_a_turn_nobody_could_judge_says_why() -> None:
    """It is not drawn as a safe one."""
    fault = Verdict(turn=1, action=Action.BLOCK, fault="The model cannot be loaded.").to_json()
    (card,) = cards_of((make_entry("hi", verdict=fault),))
    assert "Not judged: The model cannot be loaded." in turn_html(card)
    assert points_of([card]) == ()


def test_the_counterfactual_is_one_sentence_for_each_case() -> None:
    """Passed, allowed without some turns, refused for itself, refused whatever is left out."""
    blocked = make_verdict(turn=6, mode=Mode.CRITICAL, action=Action.BLOCK)
    assert "nothing stands in its way" in counterfactual(explanation(make_verdict(turn=6)))
    assert "allowed without turns 3 and 5" in counterfactual(explanation(blocked, without=(3, 5)))
    assert "for what it says itself" in counterfactual(explanation(blocked, alone=Action.BLOCK))
    assert "whichever earlier turns" in counterfactual(explanation(blocked))


def test_a_replay_lists_only_turns_that_differ() -> None:
    """Equal turns are counted, not listed."""
    same, ours = make_verdict(turn=1), make_verdict(turn=2)
    theirs = make_verdict(turn=2, mode=Mode.CRITICAL, action=Action.BLOCK)
    shown = replay_html(replay_view("s", [(same, same), (ours, theirs)]), "Preset strict")
    assert "1 of 2 turns." in shown
    assert "CRITICAL" in shown
    assert "same mode and the same action" in replay_html(
        replay_view("s", [(same, same)]), "Preset strict"
    )


def test_modes_are_listed_by_the_turn_that_reached_them() -> None:
    """Several modes of one turn stand together."""
    shown = reached_html(
        [
            ModeEntry(turn=2, mode=Mode.CAUTIOUS),
            ModeEntry(turn=5, mode=Mode.SUSPECT),
            ModeEntry(turn=5, mode=Mode.CRITICAL),
        ]
    )
    assert shown.count("<li>") == 2
    assert "No mode above SAFE" in reached_html([])


def row(**changes: object) -> SessionRow:
    worst = make_stored_turn(turn=3, action=Action.BLOCK, reason="asks for a <weapon>")
    return SessionRow(state=state(**changes), worst=worst, text="Where is <b>my</b> parcel?")


def test_a_row_links_to_the_offending_turn_and_says_why() -> None:
    """Any id makes a link; message and reason are text; the most severe message is shown."""
    shown = row_html(row(session_id="a/b?c=<d>"), "/dashboard")
    assert 'href="/dashboard/session?id=a%2Fb%3Fc%3D%3Cd%3E#turn-3"' in shown
    assert "<b>my</b>" not in shown
    assert "asks for a &lt;weapon&gt;" in shown


def test_a_row_marks_what_is_special() -> None:
    """Laundering attempts, demo conversations, locks and labels are seen at a glance."""
    assert "history rewritten" in row_html(row(history_rewrites=1), "")
    assert ">demo<" in row_html(row(session_id="demo:x"), "")
    assert ">demo<" not in row_html(row(), "")
    assert "locked" in row_html(row(lock=Lock(turn=1, reason="x")), "")


def test_words_are_marked_where_spans_point() -> None:
    """Overlapping spans are joined, odd ones ignored, text escaped inside and outside."""
    spans = (
        Span(start=4, end=9, label="intent.harm"),
        Span(start=6, end=11, label="hazard"),
        Span(start=90, end=99, label="late"),
    )
    assert marked("say <boom> & go", spans) == (
        'say <mark title="intent: harm">&lt;boom</mark><mark title="hazard">&gt; </mark>&amp; go'
    )
    assert marked("abc", (), 2) == "ab …"


def test_the_first_sentence_says_what_was_done_and_why() -> None:
    """The most severe turn counts, a lock is named, and nothing found is said as well."""
    (card,) = cards_of((make_entry("x", verdict=VERDICT),))
    said = sentence_html(state(lock=Lock(turn=1, reason="three blocks")), card)
    assert 'href="#turn-1"' in said
    assert "was blocked: it" in said
    assert "locked</b> since turn 1: three blocks" in said
    assert "Nothing was blocked, stripped or steered in 1 turn." in sentence_html(state(), None)


def test_labels_are_listed_newest_first_with_their_notes_escaped() -> None:
    """A label names verdict, author and note."""
    first = SessionLabel(verdict="attack", author="ana", timestamp=1.0, note="<hr>")
    second = SessionLabel(verdict="false_alarm", author="ben", timestamp=2.0)
    shown = render("session", "labels", [first, second], LABELS)
    assert shown.index("False alarm") < shown.index("True attack")
    assert "<hr>" not in shown
    assert "Not labelled yet" in render("session", "labels", [], LABELS)


def test_signals_are_summed_over_risky_and_other_sessions() -> None:
    """The mean is over all sessions of the kind, also those where the signal was silent."""
    spoken = LedgerEntry(turn=1, nats=4.0, retained=1.0, signals=(("fil", 4.0),))
    ledger = Ledger(entries=(spoken,))
    states = [state(mode=Mode.UNSAFE, ledger=ledger), state(mode=Mode.UNSAFE), state()]
    (share,) = shares_of(states)
    assert (share.signal, share.sessions, share.risky_nats, share.other_nats) == (
        "fil",
        1,
        2.0,
        0.0,
    )


def test_every_signal_is_described_in_words_of_its_own() -> None:
    """Signals of one file are told apart."""
    rows = [signal_row(name, signal, shipped_weights()) for name, signal in load_signals()]
    assert all(row.looks_at for row in rows)
    assert len({row.looks_at for row in rows}) == len(rows)


@pytest.mark.parametrize(
    ("weight", "most"),
    [
        (SignalWeight(link="linear", scale=0.8, later=1.5), 1.5),
        (SignalWeight(link="linear", scale=0.8, later=0.2), 0.8),
        (SignalWeight(link="linear", scale=9.0, limit=5.0), 5.0),
        (SignalWeight(link="logit", scale=0.1, limit=8.0), 1.38),
        (SignalWeight(link="logit", scale=0.0), 0.0),
    ],
)
def test_the_most_that_a_signal_adds_is_what_a_full_score_weighs(
    weight: SignalWeight, most: float
) -> None:
    """In whichever turn it weighs more, and never the limit where no score reaches that."""
    weights = shipped_weights().model_copy(update={"signals": {"x": weight}})
    assert signal_row("x", signal_row, weights).most == pytest.approx(most, abs=0.01)


def test_a_report_shows_its_numbers_with_intervals(tmp_path: Path) -> None:
    """Recall, false positives and what each signal caught come from the file."""
    measure = {"value": 0.913, "low": 0.9, "high": 0.925}
    group = {"name": "all", "attacks": 10, "benign": 20, "recall": measure}
    body = {
        "schema": SCHEMA,
        "created": 1_700_000_000.0,
        "cases": 30,
        "contenders": [
            {
                "name": "balanced",
                "judged": 30,
                "failed": 0,
                "headline": [{"key": "recall", "label": "recall <all>", "measure": measure}],
                "by_source": [group],
                "signals": {
                    "caught": 9,
                    "hard": 2,
                    "only_together": 3,
                    "signals": [{"signal": "fil", "alone": 2, "needed": 4, "mean_nats": 1.5}],
                },
            }
        ],
    }
    path = tmp_path / "published.json"
    path.write_text(json.dumps(body), encoding="utf-8")
    report = read_report(path)
    assert report is not None
    shown = report_html(report)
    for part in ("91.3%", "90.0–92.5%", "balanced", "By source (1)", "only by several"):
        assert part in shown
    ((_, value),) = headline_rows(report.contenders[0])
    number, _, interval = value.partition(" ")
    said = f'recall &lt;all&gt;</span><b class="num">{number} <small>{interval}</small></b>'
    assert said in shown


def test_a_report_is_absent_or_broken_never_half_read(tmp_path: Path) -> None:
    """No file is None; any other content is an error that names the form."""
    path = tmp_path / "published.json"
    assert read_report(path) is None
    for text in ("", "[]", '{"schema": "other/1"}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=SCHEMA):
            read_report(path)


def test_numbers_are_written_honestly() -> None:
    """No risk is rounded up to certainty; nothing is minus zero; turns read as a sentence."""
    assert risk_text(0.9999) == ">0.99"
    assert risk_text(1.0) == "1.00"
    assert nats_text(-0.001) == "0.00"
    assert nats_text(-1.5) == "−1.50"
    assert turns_in_words((3,)) == "turn 3"
    assert turns_in_words((1, 3, 5)) == "turns 1, 3 and 5"
