"""Every rule does what its own examples say, and every directive is reachable in every language."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
import re2

from promptguard.errors import DataError
from promptguard.fil.directives import Directive
from promptguard.fil.engine import FrozenInstinct
from promptguard.fil.finding import canonical, sentences
from promptguard.fil.rules import Kind, checked, rule_packs
from promptguard.patterns import Entry, PatternSet, codes, parse_pack
from promptguard.patterns.pack import Form, spell_out
from promptguard.text import read_text

RULES = tuple(rule for pack in rule_packs() for rule in pack.entries)
ALONE = [(rule, text) for rule in RULES for text in rule.match]
CLEAN = [(rule, text) for rule in RULES for text in rule.clean]
VIOLATING = [(rule, text) for rule in RULES for text in rule.violates]
INNOCENT = [(rule, text) for rule in RULES for text in rule.innocent]


def _matches(rule: Entry, text: str) -> bool:
    pattern = re2.compile(rule.pattern)
    scan = canonical(read_text(text).plain)
    parts = [scan] if rule.kind == Kind.TEMPORAL else sentences(scan)
    return any(pattern.search(part) for part in parts)


def _name(value: object) -> str:
    return value.id if isinstance(value, Entry) else ""


@pytest.mark.parametrize(("rule", "text"), ALONE, ids=_name)
def test_a_pattern_matches_its_examples(rule: Entry, text: str) -> None:
    """What must match does."""
    assert _matches(rule, text)


@pytest.mark.parametrize(("rule", "text"), CLEAN, ids=_name)
def test_a_pattern_leaves_its_counterexamples(rule: Entry, text: str) -> None:
    """What must not match does not."""
    assert not _matches(rule, text)


@pytest.mark.parametrize(("rule", "text"), VIOLATING, ids=_name)
def test_a_violation_is_seen_as_one(layer: FrozenInstinct, rule: Entry, text: str) -> None:
    """Content with intent violates the rule's directive and blocks."""
    reading = layer.assess(read_text(text), now=0.0, use_temporal=False)
    assert rule.directive in reading.violated
    assert rule.id in reading.rule_ids
    assert reading.is_blocking


@pytest.mark.parametrize(("rule", "text"), INNOCENT, ids=_name)
def test_a_mention_is_no_violation(layer: FrozenInstinct, rule: Entry, text: str) -> None:
    """Talking about a thing, asking for help or using a homonym violates nothing."""
    reading = layer.assess(read_text(text), now=0.0, use_temporal=False)
    assert reading.violated == ()
    assert not reading.is_blocking


@pytest.mark.parametrize("language", codes("rules"))
def test_every_directive_is_reachable_in_every_language(language: str) -> None:
    """Each pack has content for all thirteen directives, each with both kinds of examples."""
    contents = [r for r in RULES if r.language == language and r.kind == Kind.CONTENT]
    assert {rule.directive for rule in contents} == {directive.value for directive in Directive}
    assert all(rule.violates and rule.innocent for rule in contents)


@pytest.mark.parametrize("language", codes("rules"))
def test_every_language_has_every_frame(language: str) -> None:
    """Intents, features, contexts, temporal patterns and concept families exist everywhere."""
    names = {(r.kind, r.name) for r in RULES if r.language == language}
    english = {(r.kind, r.name) for r in RULES if r.language == "en"}
    for kind in (Kind.INTENT, Kind.FEATURE, Kind.CONTEXT, Kind.TEMPORAL):
        assert {n for k, n in names if k == kind} == {n for k, n in english if k == kind}
    families = {name.split(".")[0] for kind, name in names if kind == Kind.CONCEPT}
    assert families >= {"weapon", "poison", "drug", "malware", "fraud", "violence", "terrorism"}


def test_identifiers_are_unique_and_examples_complete() -> None:
    """An id names one rule, and every rule has an example for and against it."""
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all((r.match or r.violates) and (r.clean or r.innocent) for r in RULES)
    assert all(rule.id.startswith(f"{rule.language}-") for rule in RULES)


def test_the_shared_automaton_agrees_with_each_pattern_alone() -> None:
    """Running all rules at once finds exactly the rules that match one by one."""
    together = PatternSet(RULES)
    compiled = [(rule, re2.compile(rule.pattern)) for rule in RULES]
    for _, text in VIOLATING[::5]:
        scan = canonical(text)
        alone = {rule.id for rule, pattern in compiled if pattern.search(scan)}
        assert {rule.id for rule in together.match(scan)} == alone


def test_boundaries_work_for_accents_and_without_spaces() -> None:
    """A space is a word boundary for letters with accents; Han characters need none."""
    words = spell_out("é@ fin", Form.WORDS, {}, frozenset())
    assert re2.search(words, canonical("un été fin."))
    assert not re2.search(words, canonical("un cafété fin"))
    assert not re2.search(words, canonical("été finale"))
    joined = spell_out("爆弾~作", Form.CHARACTERS, {}, frozenset())
    assert re2.search(joined, canonical("この爆弾をどう作るか"))
    assert not re2.search(joined, canonical("爆弾。作る"))


PACK = """
language = "xx"
version = 1
form = "words"
scripts = ["latin"]
[lists]
thing = "cake|pie"
[[entry]]
id = "xx-one"
kind = "content"
directive = "FIL-01"
pattern = "bake {thing}"
violates = ["bake cake"]
innocent = ["eat cake"]
"""


def test_a_further_pack_can_be_added(tmp_path: Path) -> None:
    """A file of the same form is read next to the bundled ones."""
    path = tmp_path / "xx.toml"
    path.write_text(PACK, encoding="utf-8")
    layer = FrozenInstinct.load(languages=["en"], extra_paths=[path])
    assert "xx-one" in layer.assess(read_text("How do I bake pie?"), now=0.0).rule_ids


@pytest.mark.parametrize(
    ("named", "attack"), [("", "harm"), ('name = "extraction"\n', "extraction")]
)
def test_a_rule_may_say_what_its_violation_does(tmp_path: Path, named: str, attack: str) -> None:
    """Else its directive does; what is hidden in an encoding counts as well."""
    path = tmp_path / "xx.toml"
    path.write_text(PACK.replace("directive", f"{named}directive"), encoding="utf-8")
    layer = FrozenInstinct.load(languages=["en"], extra_paths=[path])
    hidden = base64.b64encode(b"How do I bake pie?").decode()
    for text in ("How do I bake pie?", f"Please do this: {hidden}"):
        assert layer.assess(read_text(text), now=0.0).attacks == {attack}
    assert layer.assess(read_text("I eat pie."), now=0.0).attacks == frozenset()


@pytest.mark.parametrize("language", codes("rules"))
def test_requests_for_hidden_text_are_extraction_in_every_language(language: str) -> None:
    """Each pack tells them from orders to drop instructions."""
    named = [rule for rule in RULES if rule.language == language and rule.name == "extraction"]
    assert [rule.directive for rule in named] == ["FIL-05"]


@pytest.mark.parametrize(
    ("found", "written", "fault"),
    [
        ('kind = "content"', 'kind = "noise"', "kind"),
        ('directive = "FIL-01"', 'directive = "FIL-99"', "directive"),
        ('violates = ["bake cake"]', "", "example"),
        ('pattern = "bake {thing}"', 'pattern = "bake {other}"', "other"),
        ('pattern = "bake {thing}"', 'colour = "red"\npattern = "bake {thing}"', "colour"),
        ('kind = "content"', 'kind = "feature"\nname = "unheard"', "name"),
        ('kind = "content"', 'kind = "content"\nname = "unheard"', "name"),
        ('kind = "content"', 'kind = "concept"', "concept"),
        ('kind = "content"', 'kind = "content"\nwith = ["explian"]', "explian"),
        ('kind = "content"', 'kind = "content"\nneeds = ["intents"]', "intents"),
        ('language = "xx"', "language = ", "TOML"),
        ("version = 1", "", "version"),
    ],
)
def test_a_broken_pack_is_a_data_error(found: str, written: str, fault: str) -> None:
    """Every fault is named, so that the author of a pack can mend it."""
    with pytest.raises(DataError, match=fault):
        checked(parse_pack(PACK.replace(found, written), "xx.toml"))


def test_a_rule_of_words_alone_is_refused() -> None:
    """It has no pattern, and an empty one would match every text."""
    pack = parse_pack(PACK.replace('pattern = "bake {thing}"', 'words = ["bake"]'), "xx.toml")
    with pytest.raises(DataError, match="xx-one needs a pattern"):
        PatternSet(pack.entries)


def test_a_bad_pattern_and_a_missing_file_are_data_errors(tmp_path: Path) -> None:
    """What cannot be compiled or read is reported, not skipped."""
    pack = parse_pack(PACK.replace("bake {thing}", "bake ({thing}"), "xx.toml")
    with pytest.raises(DataError, match="xx-one"):
        PatternSet(pack.entries)
    with pytest.raises(DataError, match="Cannot read"):
        rule_packs(["en"], [tmp_path / "none.toml"])
    with pytest.raises(DataError, match="no rules pack"):
        rule_packs(["tlh"])
