"""The sum is the one that is documented, term by term."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from conversations import EMPTY, record

from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.parameters import read_parameters
from promptguard.fil.rules import checked
from promptguard.patterns import parse_pack
from promptguard.protocols import FilReading
from promptguard.state import EscalationEvent
from promptguard.text import read_text

NOW = 5_000.0


def _entry(slug: str, kind: str, pattern: str, **more: object) -> str:
    fields = "".join(f"{key} = {value!r}\n".replace("True", "true") for key, value in more.items())
    return (
        f'[[entry]]\nid = "t-{slug}"\nkind = "{kind}"\npattern = "{pattern}"\n{fields}'
        f'match = ["{pattern}"]\nclean = ["-"]\n'
    )


def _feature(name: str) -> str:
    return _entry(name, "feature", name.replace("_", ""), name=name)


PACK = (
    'language = "t"\nversion = 1\nform = "words"\nscripts = ["latin"]\n[lists]\n'
    + "".join(
        map(
            _feature,
            ("critical", "jailbreak", "dan", "roleplay", "hypothetical", "translation_evasion"),
        )
    )
    + _entry("harm", "content", "smash", directive="FIL-01a")
    + _entry("arms", "content", "forge", directive="FIL-01d", weight=1.0)
    + _entry("mass", "content", "wipeout", directive="FIL-01b")
    + _entry("mode", "content", "unbind", directive="FIL-05a", asks=True)
    + _entry("ask", "intent", "howto", name="method")
    + _entry("say", "intent", "explain", name="explain")
    + _entry("guard", "context", "protect", name="defensive", weight=0.3)
    + _entry("past", "context", "history", name="legitimate", weight=0.5)
    + _entry("claim", "context", "research", name="pseudo_legitimate", weight=0.65)
    + _entry("back", "temporal", "earlier", name="revisit")
    + _entry("more", "temporal", "another", name="cumulative")
    + _entry("step", "temporal", "stepwise", name="escalation")
    + _entry("next", "temporal", "goon", name="follow_up")
    + _entry("tool", "concept", "hammer", name="tool.hammer", directive="FIL-01d")
)


@pytest.fixture(scope="module")
def small() -> FrozenInstinct:
    return FrozenInstinct([checked(parse_pack(PACK, "t.toml"))], read_parameters())


def _alone(small: FrozenInstinct, text: str, persona: str = "strict") -> FilReading:
    return small.assess(read_text(text), now=NOW, persona=persona, use_temporal=False)


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        ("critical", 1.0),
        ("jailbreak", 0.8),
        ("dan", 0.8),
        ("roleplay", 0.7),
        ("hypothetical", 0.6),
        ("translationevasion", 0.7),
        ("critical dan", 1.8),
        ("howto critical", 1.0 + 0.8),
        ("smash", 0.0),
        ("howto smash", 1.5 * 1.8 * 0.5),
        ("howto forge", 1.5 * 1.0 * 0.5),
        ("unbind", 1.5 * 1.5 * 1.0),
        ("howto smash unbind", 1.5 * max(1.8 * 0.5, 1.5 * 1.0)),
        ("howto smash hypothetical", 1.5 * 1.8 * 0.5 + 0.6 + 0.4),
        ("howto smash research", (1.5 * 1.8 * 0.5 + 0.6) * 0.65),
        ("explain smash history", 0.0),
        ("howto smash history", 1.5 * 1.8 * 0.5 * 0.5),
        ("howto smash protect", 0.0),
        ("nothing of interest", 0.0),
    ],
)
def test_the_base_score_is_exact(small: FrozenInstinct, text: str, raw: float) -> None:
    """Features, their sums, the violation term and the context multipliers."""
    reading = _alone(small, text)
    assert reading.raw_score == pytest.approx(raw)
    assert reading.harm_score == pytest.approx(min(1.0, raw))
    assert reading.is_blocking is (raw >= 0.70)


@pytest.mark.parametrize(
    ("scripts", "pattern"),
    [("", "forge"), ('scripts = ["arabic"]\n', "قنبلة"), ('scripts = ["arabic"]\n', "forge")],
)
def test_rules_of_a_script_that_is_not_told_are_searched_everywhere(
    scripts: str, pattern: str
) -> None:
    """A pack that names no script, or one that texts are not sorted by, is never passed over."""
    source = f'language = "t"\nversion = 1\nform = "words"\n{scripts}[lists]\n' + _entry(
        "own", "content", pattern, directive="FIL-01d", asks=True
    )
    layer = FrozenInstinct([checked(parse_pack(source, "t.toml"))], read_parameters())
    assert _alone(layer, pattern).violated == ("FIL-01d",)


def test_a_rule_of_ones_own_leaves_those_of_its_name_their_exceptions() -> None:
    """Two packs may call their rules alike; each is excepted by its own words."""
    head = 'language = "t"\nversion = 1\nform = "words"\nscripts = ["latin"]\n[lists]\n'
    asks = {"directive": "FIL-01d", "asks": True}
    sources = (
        head + _entry("same", "content", "forge", unless="horseshoe", **asks),
        head + _entry("same", "content", "weld", unless="bicycle", **asks),
    )
    layer = FrozenInstinct([checked(parse_pack(s, "t.toml")) for s in sources], read_parameters())
    assert _alone(layer, "forge a bicycle").violated == ("FIL-01d",)
    assert _alone(layer, "forge a horseshoe").violated == ()
    assert _alone(layer, "weld a bicycle").violated == ()


def test_the_persona_changes_the_weight(small: FrozenInstinct) -> None:
    """A directive weighs more for the persona that names it."""
    assert _alone(small, "unbind", "friendly").raw_score == pytest.approx(1.5 * 1.5 * 0.5)


def test_a_mention_is_told_apart_from_a_violation(small: FrozenInstinct) -> None:
    """Content without intent is mentioned, concepts are named with their family."""
    reading = _alone(small, "they smash it with a hammer")
    assert reading.violated == ()
    assert reading.mentioned == ("FIL-01a", "FIL-01d")
    assert reading.concepts == ("tool.hammer",)
    assert reading.rule_ids == ("t-harm", "t-tool")
    assert reading.reason == "mentions FIL-01a, FIL-01d"


def test_a_short_neighbour_lends_its_intent(small: FrozenInstinct) -> None:
    """The question may stand in the next sentence, if that says little else."""
    assert _alone(small, "I will smash it. Howto?").violated == ("FIL-01a",)
    far = (
        "Howto bring a really long sentence about many other things to a friendly end today. Smash."
    )
    assert _alone(small, far).violated == ()


def test_certain_directives_are_hard(small: FrozenInstinct) -> None:
    """A hard violation is stored with harm 1 and blocks whatever the sum."""
    reading = _alone(small, "howto wipeout history")
    assert reading.is_hard
    assert reading.harm_score == 1.0
    assert reading.is_blocking


def test_hidden_text_is_judged_and_counts_as_evasion(small: FrozenInstinct) -> None:
    """Content found by decoding adds the evasion feature."""
    hidden = base64.b64encode(b"howto smash it with a big hammer").decode()
    reading = _alone(small, f"please read {hidden}")
    assert reading.violated == ("FIL-01a",)
    assert reading.raw_score == pytest.approx(1.5 * 1.8 * 0.5 + 0.7)


def test_temporal_patterns_add_only_in_temporal_mode(small: FrozenInstinct) -> None:
    """Revisit, cumulative and escalation patterns are no part of the single-turn baseline."""
    views = read_text("earlier another stepwise")
    assert small.assess(views, now=NOW).raw_score == pytest.approx(0.5 + 0.6 + 0.8)
    assert small.assess(views, now=NOW, use_temporal=False).raw_score == 0.0


def test_all_terms_add_up_in_an_escalating_session(small: FrozenInstinct) -> None:
    """Base with amplification, inertia, counterfactual severity and the penalty, exactly."""
    turns = tuple(record(i, NOW, harm=0.2, directives=("FIL-01d",)) for i in range(4))
    events = tuple(EscalationEvent(timestamp=NOW, turn=i) for i in range(3))
    past = replace(EMPTY, recent=turns, escalations=events).history
    reading = small.assess(read_text("howto forge"), past, now=NOW)
    assert reading.escalation == ("burst",)
    assert reading.counterfactual_severity == pytest.approx(4 * 0.2 / 2)
    base, inertia = 1.5 * 1.0 * 0.5 * 1.2, 0.2 * 1.0 * 0.5
    assert reading.raw_score == pytest.approx(base + inertia + 0.4 + 0.5)
    assert reading.is_hard
    assert reading.harm_score == 1.0


def test_strong_inertia_is_hard(small: FrozenInstinct) -> None:
    """Six earlier events of a directive make the next one hard by themselves."""
    turns = tuple(record(i, NOW - 1e6, harm=0.0, directives=("FIL-01d",)) for i in range(6))
    past = replace(EMPTY, recent=turns).history
    assert small.assess(read_text("howto forge"), past, now=NOW).is_hard
    assert not small.assess(read_text("forge"), past, now=NOW).is_hard


def test_a_score_cannot_feed_on_itself(small: FrozenInstinct) -> None:
    """What is stored never exceeds 1, so that the past cannot grow without bound."""
    turns = tuple(record(i, NOW, harm=1.0, directives=("FIL-01a",)) for i in range(10))
    past = replace(EMPTY, recent=turns).history
    reading = small.assess(read_text("howto smash critical dan jailbreak"), past, now=NOW)
    assert reading.raw_score > 5.0
    assert reading.harm_score == 1.0


def test_a_follow_up_inherits_what_it_continues(small: FrozenInstinct) -> None:
    """No word of its own, yet judged by the last turn that violated something nearby."""
    near = replace(
        EMPTY, recent=(record(1, NOW, harm=1.0, directives=("FIL-01d",)), record(2, NOW))
    )
    reading = small.assess(read_text("goon"), near.history, now=NOW)
    assert reading.violated == ("FIL-01d",)
    assert "continues an earlier turn that violated FIL-01d" in reading.reason
    far = replace(near, recent=(*near.recent, record(3, NOW), record(4, NOW)))
    assert small.assess(read_text("goon"), far.history, now=NOW).violated == ()
    assert small.assess(read_text("goon earlier"), far.history, now=NOW).violated == ("FIL-01d",)
    assert small.assess(read_text("goon"), EMPTY.history, now=NOW).violated == ()


def test_a_directive_of_another_version_is_not_continued(small: FrozenInstinct) -> None:
    """A session that a newer guard stored is followed as far as this one knows its directives."""
    turn = record(1, NOW, harm=1.0, directives=("FIL-01d", "FIL-77"))
    past = replace(EMPTY, recent=(turn,)).history
    assert small.assess(read_text("goon"), past, now=NOW).violated == ("FIL-01d",)


def test_a_message_with_a_topic_is_no_follow_up(small: FrozenInstinct) -> None:
    """Who names other things says something of their own."""
    past = replace(EMPTY, recent=(record(1, NOW, harm=1.0, directives=("FIL-01d",)),)).history
    text = "goon with the leek soup, carrots and butter"
    assert small.assess(read_text(text), past, now=NOW).violated == ()


def test_a_concept_of_the_same_family_continues_too(small: FrozenInstinct) -> None:
    """Asking on about a relative of what was violated is the same story, telling is not."""
    turn = record(1, NOW, harm=1.0, directives=("FIL-01d",), concepts=("tool.axe",))
    past = replace(EMPTY, recent=(turn,)).history
    assert small.assess(read_text("howto hammer"), past, now=NOW).violated == ("FIL-01d",)
    assert small.assess(read_text("the hammer fell"), past, now=NOW).violated == ()
    assert small.assess(read_text("howto hammer history"), past, now=NOW).violated == ()


def test_the_reason_never_quotes_the_text(layer: FrozenInstinct) -> None:
    """Reasons name rules' outcomes, not what was said."""
    reading = layer.assess(read_text("How do I build a pipe bomb for zanzibar?"), now=NOW)
    assert "bomb" not in reading.reason
    assert "zanzibar" not in reading.reason
