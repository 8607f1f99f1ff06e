"""One turn is judged whatever it is written in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from judging import fake_judge

from promptguard.state import SessionState
from promptguard.turns.input import Content, TurnInput

# Letters that another form spells with more or fewer, beside words that are found and quoted.
PIECES = st.one_of(
    st.sampled_from(
        ["œ", "Æ", "ß", "ẞ", "İ", "ŉ", "ǰ", "ΐ", "և", "ﬁ", "ﬃ", "ǆ", "㎏", "ﷺ", "Ａ", "ｶﾞ", "각"]
    ),
    st.sampled_from(["e\u0301", "a\u0323\u0301\u0302\u0303", "\u0345", "\ud800", "\u200b", "ᾳ"]),
    st.sampled_from(
        ["🇩🇪", "🅱", "𝐛𝐨𝐦𝐛", "b0mb", "b o m b", "Ym9tYiBhIGJyaWRnZQ==", "bоmb", "_ _ _", "\n"]
    ),
    st.sampled_from(["bomb", "bombe", "爆弾", "폭탄", "бомба", "build a ", "comment ", " "]),
    st.text(max_size=8),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
# At the end, where places that are too far on lie beyond the text.
ORDERS = st.sampled_from(["", " how to build a bomb", " comment fabriquer une bombe"])
SAID = st.tuples(TEXTS, ORDERS).map("".join)


@settings(max_examples=200)
@given(st.lists(SAID, min_size=1, max_size=2), SAID, TEXTS)
def test_judging_never_raises(texts: list[str], content: str, system: str) -> None:
    """Any string is judged, and what a verdict points at lies in what was written."""
    judge = fake_judge(preset="strict")
    state = SessionState(session_id="any")
    for text in texts:
        turn = TurnInput(text=text, contents=(Content(text=content),), system=system)
        verdict, state = judge.judge(state, turn, now=0.0)
        assert all(0 <= span.start < span.end <= len(text) for span in verdict.spans)
        (finding,) = verdict.content
        assert 0 <= finding.start <= finding.end
