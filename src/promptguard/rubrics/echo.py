"""An answer that repeats the predicate of its question: "do you like tea?" "like", "not like".

Chinese and Japanese answer yes/no questions so. What is affirmed or denied is the predicate itself,
whichever way the question was put.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod

from promptguard.rubrics.folding import fold
from promptguard.rubrics.patterns import LanguageRules
from promptguard.rubrics.position import Span
from promptguard.rubrics.proposition import SYNONYM, Proposition, proposition_of
from promptguard.rubrics.question import last_question
from promptguard.rubrics.turns import Stance, Turn

_READ_CLAUSES = 2
"""An echo begins an answer; what comes later may be about something else."""
_READ_CHARS = 120
_FEW_WORDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a yes/no question puts to the other: its predicate and object without any negation.

    `on` takes the words before the question along where the question itself names next to nothing.
    `scale` names the concepts with an opposite in it, such as liking, and whether it is intended
    only: claims on another scale are not compared.
    """

    core: str
    is_negated: bool
    on: Proposition
    scale: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """A claim of the user that the answer affirms or denies, and the clause that does."""

    claim: Claim
    stance: Stance
    span: Span


def echoes_of(turn: Turn) -> tuple[Echo, ...]:
    """Return what the first clauses of an answer affirm or deny; nothing where that is open."""
    language = turn.language
    claim = None if language is None or not language.echoes else claim_in(turn.asked, language)
    if language is None or claim is None:
        return ()
    bare: tuple[Echo, ...] = ()
    stated: tuple[Echo, ...] = ()
    for start, end in _first_clauses(turn.answer, language):
        clause = fold(turn.answer[start:end])
        if language.echoes.fits("unsure", clause):
            return stated
        span = Span(start=start, end=end, text=turn.answer[start:end])
        told = _restated(clause, claim, language)
        said = None if told is not None or bare or stated else _bare(clause, claim, language)
        if told is not None and not (bare or (stated and told.is_affirmed)):
            stated += (Echo(claim=claim, stance=told, span=span),)
        elif told is not None and not told.is_affirmed:
            # "Yes, not like" denies: the words say more than the yes before them.
            return (Echo(claim=claim, stance=told, span=span),)
        elif said is not None:
            bare = (Echo(claim=claim, stance=said, span=span),)
        elif _bared(clause, language)[0]:
            break
    return stated or bare


def claim_in(asked: str, language: LanguageRules) -> Claim | None:
    """Return the claim of the last yes/no question in `asked`, or None."""
    before, question = last_question(asked, language)
    if not language.asks("asks", question) or language.asks("information", question):
        return None
    plain = language.echoes.without("presumes", _single(question, language))
    core, denials = _bared(plain, language)
    if not core or denials > 1:
        return None
    on = proposition_of(core, language)
    # To want a thing and to have done it are two claims in nearly the same words.
    scale = ",".join(
        [*sorted(on.signs), *(["intends"] if _says("intends", core, language) else [])]
    )
    if _says("attributive", core, language):
        # "A song you hate" is another thing than one you like, not the other end of a scale.
        scale = ",".join(f"{name}{sign}" for name, sign in sorted(on.signs.items()))
        on = Proposition(words=on.words)
    if sum(1 + word.startswith(SYNONYM) for word in on.words) < _FEW_WORDS:
        # "I see many dogs, do you like them?" is about what comes before.
        context = proposition_of(before, language)
        on = Proposition(words=on.words | context.words, signs=on.signs)
    return Claim(core=core, is_negated=denials == 1, on=on, scale=scale)


def _first_clauses(answer: str, language: LanguageRules) -> Iterator[tuple[int, int]]:
    """Yield the bounds of the first clauses in which nothing is asked back."""
    folded = fold(answer[:_READ_CHARS])
    said = ((a, b) for a, b in language.clauses(folded + "\n") if folded[a:b].strip())
    for start, end in islice(said, _READ_CLAUSES):
        if folded.startswith("?", end):
            return
        yield start, end


def _restated(clause: str, claim: Claim, language: LanguageRules) -> Stance | None:
    """Return what a clause in words of the claim affirms or denies."""
    core, denials = _bared(clause, language)
    if not core or denials > 1 or _says("agrees", clause, language):
        return None
    on = proposition_of(core, language)
    # Another end of the same scale, "hate" for "like", says which end it is.
    signs = on.signs if on.signs.keys() == claim.on.signs.keys() else claim.on.signs
    stance = Stance(prod(signs.values()), not denials)
    is_judged = signs is on.signs and any(hit.start == 0 for hit in language.scales.find(core))
    if core in claim.core or (is_judged and on.words <= claim.on.words):
        return stance
    return stance if not denials and _is_narrower(core, on, claim) else None


def _is_narrower(core: str, on: Proposition, claim: Claim) -> bool:
    """Say whether an affirmation names a case of the claim: "like old films" for "like films"."""
    is_liked = bool(on.signs) and on.signs.items() == claim.on.signs.items()
    return claim.core in core or (
        is_liked and 2 * len(on.words & claim.on.words) > len(claim.on.words)
    )


def _bare(clause: str, claim: Claim, language: LanguageRules) -> Stance | None:
    """Return what a mere yes or no says; to a negative question it leaves open which."""
    end = prod(claim.on.signs.values())
    if _says("agrees", clause, language) and not claim.is_negated:
        return Stance(end, is_affirmed=True)
    if _says("denies", clause, language) and not (
        claim.is_negated and _says("corrects", clause, language)
    ):
        return Stance(end, is_affirmed=False)
    return None


def _says(name: str, clause: str, language: LanguageRules) -> bool:
    return language.echoes.fits(name, clause.strip())


def _bared(clause: str, language: LanguageRules) -> tuple[str, int]:
    """Return a clause without particles and negations, and how many of these it had."""
    plain = language.echoes.without("aside", clause)
    denials = sum(1 for _ in language.echoes.spans("negates", plain))
    core = language.echoes.without("negates", plain).strip()
    # What a negation stood between begins or ends the clause only now.
    for name in ("opening", "ending", "opening"):
        core = language.echoes.without(name, core).strip()
    return core, denials


def _single(question: str, language: LanguageRules) -> str:
    """Return a question that offers both answers, "like or not like", as one that names it once."""
    group = language.echoes.get("doubled")
    if group is None:
        return question
    kept, start = "", 0
    for found in group.pattern.finditer(question):
        first, second = found.groups()
        repeated = _repeated(first, second)
        if repeated:
            kept += question[start : found.end(1)]
            start = found.start(2) + repeated
    return kept + question[start:]


def _repeated(first: str, second: str) -> int:
    """Return how many characters at the beginning of `second` end `first`."""
    return max(size for size in range(len(second) + 1) if first.endswith(second[:size]))
