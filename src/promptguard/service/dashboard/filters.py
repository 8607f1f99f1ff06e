"""What a list or an overview is narrowed to: read from the address, written back into it.

Everything a visitor chose is in the address, so a view can be linked to, reloaded and exported.
What makes no sense there is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Self
from urllib.parse import urlencode

from promptguard.conversation import printable
from promptguard.protocols import SessionQuery
from promptguard.queries import LabelFilter, SessionSort, TurnFilter
from promptguard.verdict import Action, Mode

PAGE = 50
_LONGEST = 200
_MOST_PAGES = 100_000
# A year from 1970 to 9999: what both databases and a date field can hold.
_LAST_SECOND = 253_402_300_799


class Demo(StrEnum):
    """What to do with the bundled conversations; `auto` shows them until there are others."""

    AUTO = ""
    HIDE = "hide"
    SHOW = "show"
    ONLY = "only"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListFilter:
    """Which sessions a list shows, in which order, from which page on."""

    q: str = ""
    mode: str = ""
    action: str = ""
    tag: str = ""
    signal: str = ""
    reason: str = ""
    language: str = ""
    key: str = ""
    label: str = ""
    since: str = ""
    until: str = ""
    demo: str = ""
    sort: str = ""
    order: str = ""
    page: int = 1

    @classmethod
    def from_params(cls, params: Mapping[str, str]) -> Self:
        """Read a filter from an address; what is not among the choices is left out."""
        texts = {
            each.name: printable(params.get(each.name, "")[:_LONGEST]).strip()
            for each in fields(cls)
            if each.name != "page"
        }
        for name, choices in _CHOICES.items():
            if texts[name] not in choices:
                texts[name] = ""
        for name in ("since", "until"):
            if second_of(texts[name]) is None:
                texts[name] = ""
        number = params.get("page", "1")
        # Any number of digits may stand in an address, and a store takes no such offset.
        page = int(number) if number.isdecimal() and len(number) < 7 else 1
        return cls(**texts, page=min(max(1, page), _MOST_PAGES))

    @property
    def is_narrow(self) -> bool:
        """Whether it leaves anything out."""
        return replace(self, sort="", order="", page=1, demo="") != type(self)()

    def query(self, tenant: str, *, is_demo: bool | None, limit: int = PAGE) -> SessionQuery:
        """Return what to ask the store."""
        return SessionQuery(
            tenant=tenant,
            min_mode=int(Mode[self.mode]) if self.mode else 0,
            search=self.q,
            turns=TurnFilter(
                actions=(Action(self.action),) if self.action else (),
                tag=self.tag,
                signal=self.signal,
                reason=self.reason,
                language=self.language,
                key=self.key,
                is_demo=is_demo,
                since=second_of(self.since),
                until=second_of(self.until),
            ),
            label=LabelFilter(self.label),
            sort=SessionSort(self.sort or SessionSort.UPDATED),
            is_ascending=self.order == "up",
            limit=limit,
            offset=(self.page - 1) * limit,
        )

    def params(self, **changes: object) -> str:
        """Return the filter as the query of an address, with some parts changed."""
        # Another filter begins at its first page.
        changed = replace(self, **({"page": 1} | changes))  # type: ignore[arg-type]
        kept = {
            each.name: value
            for each in fields(changed)
            if (value := getattr(changed, each.name)) not in ("", 1)
        }
        return urlencode(kept)

    def url(self, base: str, **changes: object) -> str:
        """Return the address of the list of sessions with some parts changed."""
        return f"{base}/sessions?{self.params(**changes)}".rstrip("?")

    def sorted_url(self, base: str, column: SessionSort) -> str:
        """Return the address that sorts by `column`; asked again, the other way round."""
        is_current = (self.sort or SessionSort.UPDATED) == column
        order = "up" if is_current and self.order != "up" else ""
        return self.url(base, sort=column.value, order=order)


_CHOICES: dict[str, frozenset[str]] = {
    "mode": frozenset(Mode.__members__),
    "action": frozenset(action.value for action in Action),
    "label": frozenset(label.value for label in LabelFilter),
    "demo": frozenset(demo.value for demo in Demo),
    "sort": frozenset(sort.value for sort in SessionSort),
    "order": frozenset({"up"}),
}


def second_of(text: str) -> int | None:
    """Return the second a moment such as `2026-03-01T14:00` means, in UTC; None without one."""
    try:
        moment = datetime.fromisoformat(text)
        # Date fields of browsers have no zone.
        second = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    except (ValueError, OverflowError):
        return None
    return second if 0 <= second <= _LAST_SECOND else None


def moment_of(second: int) -> str:
    """Return a second as a date field writes it, in UTC."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
