"""The questions about many sessions and turns, as SQL that both databases answer.

Statements are written once, in SQLite's words; `Statement.for_postgres` names the two that differ.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from promptguard.conversation import printable
from promptguard.protocols import SessionQuery
from promptguard.queries import (
    Bucket,
    Count,
    LabelFilter,
    Latency,
    Overview,
    OverviewQuery,
    Precision,
    SessionRow,
    TurnFilter,
    TurnQuery,
    TurnRow,
)
from promptguard.stores.rows import (
    TURN,
    id_forms,
    state_in,
    text_of,
    turn_of,
    verdict_in,
    words_of,
)
from promptguard.verdict import Action

Rows = Sequence[Sequence[Any]]
# Bounds what is read and sorted for the percentiles, however long the stretch is.
_LATENCY_TURNS = 10_000
# A double colon is a cast of PostgreSQL and no parameter.
_NAMED = re.compile(r"(?<!:):([a-z]\w*)")
_TURN = ", ".join(f"t.{column}" for column in TURN)
_GROUPS = {
    "reasons": "reason",
    "signals": "signal",
    "tags": "tags",
    "sessions": "session_id",
    "keys": "key_name",
    "languages": "language",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """SQL with named parameters, written `:name`.

    `is_long`: the answer may be whole transcripts, and turns must not wait for it.
    """

    sql: str
    values: dict[str, Any] = field(default_factory=dict)
    is_long: bool = False

    def for_postgres(self) -> bytes:
        """Return the text as psycopg takes it."""
        # instr, not LIKE: what is searched for is literal, and psycopg would take % for a
        # parameter.
        return _NAMED.sub(r"%(\1)s", self.sql).replace("instr(", "strpos(").encode()


@dataclass(slots=True, kw_only=True)
class _Conditions:
    """What rows must fulfil; `alias` is the table's name in the statement."""

    alias: str
    texts: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)

    def add(self, column: str, comparison: str, name: str, value: object) -> None:
        self.texts.append(f"{self.alias}.{column} {comparison} :{name}")
        # A filter may come from an address, in which anything can be written.
        self.values[name] = printable(value) if isinstance(value, str) else value

    @property
    def where(self) -> str:
        return " AND ".join(self.texts) or "1 = 1"


def upsert(table: str, columns: Sequence[str], source: str, *, key: int = 3) -> str:
    """Return SQL that puts rows in a table, in the place of those with the same `key` columns.

    A turn that is saved again keeps its label.
    """
    replaced = ", ".join(f"{c} = excluded.{c}" for c in columns[key:] if c != "label")
    return (
        f"INSERT INTO {table} ({', '.join(columns)}) {source} "
        f"ON CONFLICT ({', '.join(columns[:key])}) DO UPDATE SET {replaced}"
    )


def values_of(columns: Sequence[str]) -> str:
    """Return the parameters named as `columns`."""
    return ", ".join(f":{column}" for column in columns)


def states(query: SessionQuery) -> Statement:
    """Ask for the states of a page."""
    found = _session_conditions(query)
    return Statement(
        sql=f"SELECT s.state FROM guard_sessions s WHERE {found.where} "
        f"ORDER BY {_order(query)} LIMIT :limit OFFSET :offset",
        values={**found.values, "limit": query.limit, "offset": query.offset},
    )


def page(query: SessionQuery) -> Statement:
    """Ask for the rows of a page: state, label, most severe turn and its text."""
    found = _session_conditions(query)
    # The page is cut before the joins, so that only the turns of its rows are looked up.
    return Statement(
        sql=f"""SELECT s.state, s.label, e.content, {_TURN} FROM (
            SELECT * FROM guard_sessions s WHERE {found.where}
            ORDER BY {_order(query)} LIMIT :limit OFFSET :offset) s
        LEFT JOIN guard_turns t ON t.tenant = s.tenant AND t.session_id = s.session_id
            AND t.turn = (SELECT w.turn FROM guard_turns w
                WHERE w.tenant = s.tenant AND w.session_id = s.session_id
                ORDER BY w.severity DESC, w.turn_risk DESC, w.turn LIMIT 1)
        LEFT JOIN guard_entries e ON e.tenant = t.tenant AND e.session_id = t.session_id
            AND e.position = t.position
        ORDER BY {_order(query)}""",
        values={**found.values, "limit": query.limit, "offset": query.offset},
    )


def total(query: SessionQuery) -> Statement:
    """Ask how many sessions fit."""
    found = _session_conditions(query)
    return Statement(
        sql=f"SELECT count(*) FROM guard_sessions s WHERE {found.where}", values=found.values
    )


def page_row(row: Sequence[Any]) -> SessionRow | None:
    """Return a row of `page`; None for a session that this version cannot read."""
    stored, label, content, *turn = row
    state = state_in(stored)
    if state is None:
        return None
    return SessionRow(
        state=state,
        label=label,
        worst=None if turn[0] is None else turn_of(turn),
        text=text_of(content),
    )


def turns(query: TurnQuery) -> Statement:
    """Ask for turns, the newest first."""
    found = _turn_conditions(query.turns, query.tenant)
    _add_label(found, query.label)
    if query.min_risk is not None:
        found.texts.append("(t.severity >= 2 OR t.turn_risk >= :min_risk)")
        found.values["min_risk"] = query.min_risk
    return Statement(
        sql=f"""SELECT e.content, e.verdict, {_TURN} FROM guard_turns t
        LEFT JOIN guard_entries e ON e.tenant = t.tenant AND e.session_id = t.session_id
            AND e.position = t.position
        WHERE {found.where}
        ORDER BY t.second DESC, t.tenant, t.session_id, t.turn DESC
        LIMIT :limit OFFSET :offset""",
        values={**found.values, "limit": query.limit, "offset": query.offset},
    )


def turn_row(row: Sequence[Any]) -> TurnRow:
    """Return a row of `turns`."""
    content, verdict, *turn = row
    return TurnRow(turn=turn_of(turn), text=text_of(content), verdict=verdict_in(text_of(verdict)))


def precision(tenant: str | None) -> Statement:
    """Ask what people said of flagged turns, those of the demo left out."""
    found = _turn_conditions(TurnFilter(is_demo=False), tenant)
    return Statement(
        sql=f"""SELECT t.label, t.action, count(*) FROM guard_turns t
        WHERE {found.where} AND t.label <> '' AND t.severity >= 2 GROUP BY 1, 2""",
        values=found.values,
    )


def precision_of(rows: Rows) -> Precision:
    """Return the counts that `precision` asked for."""
    counts: Counter[tuple[str, bool]] = Counter()
    for label, action, count in rows:
        counts[label, action == Action.BLOCK] += count
    attack, alarm = LabelFilter.ATTACK.value, LabelFilter.FALSE_ALARM.value
    return Precision(
        attacks=counts[attack, True] + counts[attack, False],
        false_alarms=counts[alarm, True] + counts[alarm, False],
        blocked_attacks=counts[attack, True],
        blocked_false_alarms=counts[alarm, True],
    )


def overview(query: OverviewQuery) -> dict[str, Statement]:
    """Ask everything an overview shows, by name."""
    found = _turn_conditions(query.turns, query.tenant)
    # Each stretch has bounds of its own; those of the whole would only be tested once more.
    anytime = _turn_conditions(replace(query.turns, since=None, until=None), query.tenant)
    values = {**found.values, "start": query.begins, "width": query.bucket_s}
    wanted = {
        # Counting stretch by stretch reads the index in order; grouping all turns would sort them.
        "totals": Statement(
            sql=f"""WITH RECURSIVE b(n) AS (
                SELECT 0 UNION ALL SELECT n + 1 FROM b WHERE n + 1 < :count)
            SELECT b.n, (SELECT count(*) FROM guard_turns t WHERE {anytime.where}
                AND t.second >= :start + b.n * :width
                AND t.second < :start + (b.n + 1) * :width
                AND t.second >= :since AND t.second < :until) FROM b""",
            values={**values, "count": query.buckets},
        ),
        "flagged": Statement(
            sql=f"""SELECT (t.second - :start) / :width, t.action, count(*) FROM guard_turns t
            WHERE {found.where} AND t.severity >= 2 GROUP BY 1, 2""",
            values=values,
        ),
        "latency": Statement(
            sql=f"""SELECT t.latency_ms FROM guard_turns t
            WHERE {found.where} AND t.latency_ms IS NOT NULL
            ORDER BY t.second DESC LIMIT :newest""",
            values={**found.values, "newest": _LATENCY_TURNS},
        ),
    }
    for name, column in _GROUPS.items():
        # Combinations of tags are few; they are taken apart afterwards.
        limit = "" if name == "tags" else f" ORDER BY 2 DESC, 1 LIMIT {int(query.top)}"
        wanted[name] = Statement(
            sql=f"""SELECT t.{column}, count(*),
                sum(CASE WHEN t.action = 'block' THEN 1 ELSE 0 END)
            FROM guard_turns t WHERE {found.where} AND t.severity >= 2 AND t.{column} <> ''
            GROUP BY 1{limit}""",
            values=found.values,
        )
    return wanted


def overview_of(query: OverviewQuery, answers: Mapping[str, Rows]) -> Overview:
    """Return the overview from the answers to `overview`."""
    counts = {
        name: tuple(Count(name=n, turns=int(t), blocked=int(b)) for n, t, b in answers[name])
        for name in _GROUPS
    }
    counts["tags"] = _tags_apart(counts["tags"], query.top)
    return Overview(
        buckets=_buckets(
            query, {int(n): int(count) for n, count in answers["totals"]}, answers["flagged"]
        ),
        latency=_latency([row[0] for row in answers["latency"]]),
        **counts,
    )


def _buckets(query: OverviewQuery, totals: Mapping[int, int], flagged: Rows) -> tuple[Bucket, ...]:
    """Return every stretch of time, also those without turns."""
    by_bucket: dict[int, Counter[str]] = defaultdict(Counter)
    for number, action, count in flagged:
        by_bucket[int(number)][action] += count
    return tuple(
        Bucket(
            start=query.begins + number * query.bucket_s,
            turns=totals.get(number, 0),
            steered=by_bucket[number][Action.STEER] + by_bucket[number][Action.REVIEW],
            stripped=by_bucket[number][Action.STRIP],
            blocked=by_bucket[number][Action.BLOCK],
        )
        for number in range(query.buckets)
    )


def _tags_apart(combinations: Sequence[Count], top: int) -> tuple[Count, ...]:
    """Count single tags from counted combinations such as `|LLM01|AML.T0054|`."""
    turns: Counter[str] = Counter()
    blocked: Counter[str] = Counter()
    for each in combinations:
        for tag in filter(None, each.name.split("|")):
            turns[tag] += each.turns
            blocked[tag] += each.blocked
    ranked = sorted(turns, key=lambda tag: (-turns[tag], tag))[:top]
    return tuple(Count(name=tag, turns=turns[tag], blocked=blocked[tag]) for tag in ranked)


def _latency(values_ms: Sequence[float]) -> Latency | None:
    """Return median and 95th percentile; None without values."""
    if not values_ms:
        return None
    ordered = sorted(values_ms)
    return Latency(
        turns=len(ordered),
        median_ms=ordered[len(ordered) // 2],
        p95_ms=ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))],
    )


def _session_conditions(query: SessionQuery) -> _Conditions:
    found = _Conditions(alias="s")
    if query.tenant is not None:
        found.add("tenant", "=", "tenant", query.tenant)
    if query.min_mode:
        found.add("mode", ">=", "min_mode", int(query.min_mode))
    if query.contains:
        found.texts.append(_in_id(found, "contains", query.contains))
    if query.turns.is_demo is not None:
        found.add("is_demo", "=", "session_is_demo", int(query.turns.is_demo))
    if query.turns.key:
        found.add("key_name", "=", "session_key", query.turns.key)
    _add_label(found, query.label)
    _add_search(found, query)
    if query.turns.restricts_turns:
        inner = _turn_conditions(query.turns, query.tenant)
        found.texts.append(_with_turn(inner.where))
        found.values |= inner.values
    return found


def _add_search(found: _Conditions, query: SessionQuery) -> None:
    if not (words := words_of(query.search)):
        return
    names = {f"word{number}": word for number, word in enumerate(words)}
    in_id = " AND ".join(_in_id(found, name, word, fold="lower") for name, word in names.items())
    # The first form is the word as it is; the encoded one stands only in ids.
    in_text = " AND ".join(f"instr(t.words, :{name}_0) > 0" for name in names)
    found.texts.append(f"(({in_id}) OR {_with_turn(in_text)})")


def _in_id(found: _Conditions, name: str, text: str, *, fold: str = "") -> str:
    forms = {f"{name}_{number}": form for number, form in enumerate(id_forms(text))}
    found.values |= forms
    tests = (f"instr({fold}(s.session_id), {fold}(:{form})) > 0" for form in forms)
    return f"({' OR '.join(tests)})"


def _with_turn(where: str) -> str:
    return (
        "(s.tenant, s.session_id) IN "
        f"(SELECT t.tenant, t.session_id FROM guard_turns t WHERE {where})"
    )


def _turn_conditions(turns: TurnFilter, tenant: str | None) -> _Conditions:
    found = _Conditions(alias="t")
    if tenant is not None:
        found.add("tenant", "=", "turn_tenant", tenant)
    if turns.is_demo is not None:
        found.add("is_demo", "=", "turn_is_demo", int(turns.is_demo))
    if turns.since is not None:
        found.add("second", ">=", "since", int(turns.since))
    if turns.until is not None:
        found.add("second", "<", "until", int(turns.until))
    if turns.actions:
        names = {f"action{n}": action.value for n, action in enumerate(turns.actions)}
        found.texts.append(f"t.action IN ({', '.join(f':{name}' for name in names)})")
        found.values |= names
    if turns.asks_flagged:
        # Written out as in the partial index: the planners would not see it in a parameter.
        found.texts.append("t.severity >= 2")
    if turns.tag:
        found.texts.append("instr(t.tags, :tag) > 0")
        found.values["tag"] = printable(f"|{turns.tag}|")
    for column, value in (
        ("signal", turns.signal),
        ("reason", turns.reason),
        ("language", turns.language),
        ("key_name", turns.key),
    ):
        if value:
            found.add(column, "=", f"turn_{column}", value)
    return found


def _add_label(found: _Conditions, label: LabelFilter) -> None:
    if label is not LabelFilter.ANY:
        wanted = "" if label is LabelFilter.NONE else label.value
        found.add("label", "=", "label", wanted)


def _order(query: SessionQuery) -> str:
    direction = "ASC" if query.is_ascending else "DESC"
    # Ties end in the id, so that no row is on two pages.
    tie = "" if query.sort == "updated" else ", s.updated DESC"
    return f"s.{query.sort.value} {direction}{tie}, s.tenant, s.session_id"
