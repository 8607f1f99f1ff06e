"""Sessions as files: the list as CSV or JSON lines, one session as JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from promptguard.errors import InputError
from promptguard.protocols import SessionKey, SessionQuery, SessionStore
from promptguard.queries import SessionRow
from promptguard.service.dashboard.access import context_of, error_page, visitor_of
from promptguard.service.dashboard.filters import ListFilter, moment_of
from promptguard.service.dashboard.overview import demo_filter
from promptguard.service.lanes import computed_over
from promptguard.state import SessionState, TranscriptEntry

_ROWS = 500
# A spreadsheet would run a cell that begins like this.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


async def export_sessions(request: Request) -> Response:
    """Answer with all sessions that fit the address, as `format` says."""
    store, tenant = context_of(request).controller.store, visitor_of(request).tenant
    wanted = replace(ListFilter.from_params(request.query_params), page=1)
    is_demo, _ = await demo_filter(store, tenant, wanted.demo)
    rows = _rows(store, wanted.query(tenant, is_demo=is_demo, limit=_ROWS))
    if request.query_params.get("format") == "jsonl":
        return _file(_json_lines(rows), "sessions.jsonl", "application/x-ndjson")
    return _file(_csv(rows), "sessions.csv", "text/csv; charset=utf-8")


async def export_session(request: Request) -> Response:
    """Answer with the messages of one session, one per line, with their verdicts."""
    context, visitor = context_of(request), visitor_of(request)
    key = SessionKey(session_id=request.query_params.get("id", ""), tenant=visitor.tenant)
    try:
        entries = await context.controller.store.transcript(key)
    except InputError:
        entries = ()
    if not entries:
        return error_page(request, "Session not found", "It may have been deleted.", 404)
    body = await computed_over(len(entries), _messages, key.session_id, entries)
    headers = {"content-disposition": 'attachment; filename="session.jsonl"'}
    return Response(body, media_type="application/x-ndjson", headers=headers)


def _messages(session_id: str, entries: Sequence[TranscriptEntry]) -> str:
    """Return messages one per line, with their verdicts."""
    messages = (
        {
            "session_id": session_id,
            "turn": entry.turn,
            "role": entry.role.value,
            "content": entry.content,
            "timestamp": entry.timestamp,
            "verdict": json.loads(entry.verdict) if entry.verdict else None,
        }
        for entry in entries
    )
    # Half a surrogate pair can be escaped but not encoded.
    return "".join(json.dumps(message, ensure_ascii=True) + "\n" for message in messages)


def values_of(row: SessionRow) -> dict[str, str | int | float | bool]:
    """Return what a file says of a session, by column."""
    state, worst = row.state, row.worst
    return {
        "session_id": state.session_id,
        "updated": moment_of(max(0, int(state.updated))),
        "mode": state.mode.name,
        "accumulated_risk": round(state.accumulated_risk, 4),
        "peak_risk": round(state.profile.peak_risk, 4),
        "turns": state.turn_count,
        "blocked": state.profile.blocked,
        "label": row.label,
        "is_demo": row.is_demo,
        "worst_turn": worst.turn if worst else 0,
        "action": worst.action.value if worst else "",
        "turn_risk": round(worst.turn_risk, 4) if worst else 0.0,
        "signal": worst.signal if worst else "",
        "reason": worst.reason if worst else "",
        "tags": " ".join(worst.tags) if worst else "",
        "language": worst.language if worst else "",
        "text": row.text or "",
    }


async def _rows(store: SessionStore, query: SessionQuery) -> AsyncIterator[SessionRow]:
    # Page by page while the file is sent: no list of all sessions is ever in memory.
    while (page := await store.page(query)).rows:
        for row in page.rows:
            yield row
        query = replace(query, offset=query.offset + _ROWS)


async def _csv(rows: AsyncIterator[SessionRow]) -> AsyncIterator[bytes]:
    # The names stand in the first line, also where there is no session.
    yield _csv_line(values_of(SessionRow(state=SessionState(session_id=""))))
    async for row in rows:
        yield _csv_line(_cell(value) for value in values_of(row).values())


async def _json_lines(rows: AsyncIterator[SessionRow]) -> AsyncIterator[bytes]:
    async for row in rows:
        yield json.dumps(values_of(row), ensure_ascii=True).encode() + b"\n"


def _cell(value: object) -> str:
    is_formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if is_formula else str(value)


def _csv_line(cells: Iterable[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerow(cells)
    return buffer.getvalue().encode("utf-8", "replace")


def _file(content: AsyncIterator[bytes], name: str, media_type: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(content, media_type=media_type, headers=headers)
