"""OpenAI's moderation endpoint: each input is judged alone and nothing is stored."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from promptguard.computations import offloaded
from promptguard.controller import Controller
from promptguard.service.auth import Scope, permitted
from promptguard.service.errors import error_responses
from promptguard.service.routes.long_bodies import LongBodyRoute
from promptguard.service.verdicts import category_scores, is_flagged
from promptguard.state import SessionState
from promptguard.turns.input import TurnInput

MODEL = "promptguard"
_LIKELY = 0.5
Text = Annotated[str, Field(max_length=1_000_000)]


class TextPart(BaseModel):
    """A text in an input of several parts."""

    type: Literal["text"]
    text: Text


class ImagePart(BaseModel):
    """An image in an input of several parts; it is accepted and not judged."""

    type: Literal["image_url"]
    image_url: object


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class ModerationRequest(BaseModel):
    """One text, several texts, or one input of several parts; `model` is accepted and ignored."""

    input: Text | Annotated[list[Text] | list[Part], Field(min_length=1, max_length=64)]
    model: str | None = Field(default=None, max_length=256)

    @property
    def texts(self) -> list[str | None]:
        """The text of each input; None where an input holds nothing that can be judged."""
        if isinstance(self.input, str):
            return [self.input]
        texts = [item for item in self.input if isinstance(item, str)]
        if texts:
            return list(texts)
        parts = [item.text for item in self.input if isinstance(item, TextPart)]
        return ["\n".join(parts) if parts else None]


class ModerationResult(BaseModel):
    """The judgement of one input. Categories not listed were not judged."""

    flagged: bool
    categories: dict[str, bool]
    category_scores: dict[str, float]


class Moderation(BaseModel):
    """OpenAI's answer."""

    id: str
    model: str
    results: list[ModerationResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModerationsApi:
    """Handler of the moderation route."""

    controller: Controller
    clock: Callable[[], float]

    async def moderate(self, request: Request, body: ModerationRequest) -> Moderation:
        """Judge each input as if it were the only message of a conversation."""
        permitted(request, Scope.GUARD)
        results = [await asyncio.to_thread(self._judged, text) for text in body.texts]
        return Moderation(id=f"modr-{secrets.token_hex(12)}", model=MODEL, results=results)

    def _judged(self, text: str | None) -> ModerationResult:
        if text is None:
            # An image was not judged, which must not read as "no category applies".
            return ModerationResult(flagged=False, categories={}, category_scores={})
        judge = self.controller.judge
        # A state that is never stored: each input is judged as if it were the first turn.
        state = SessionState(session_id="once")
        verdict, _ = offloaded(judge.judge, state, TurnInput(text=text), now=self.clock())
        scores = category_scores(verdict)
        return ModerationResult(
            flagged=is_flagged(verdict, judge.weights.modes),
            categories={name: score >= _LIKELY for name, score in scores.items()},
            category_scores=scores,
        )


def moderation_routes(api: ModerationsApi) -> APIRouter:
    """Return the moderation route."""
    routes = APIRouter(tags=["guard"], responses=error_responses(), route_class=LongBodyRoute)
    routes.add_api_route("/v1/moderations", api.moderate, methods=["POST"])
    return routes
