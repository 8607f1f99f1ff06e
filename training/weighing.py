"""How often a source is drawn: by the root of its size, and by what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = dict[str, Any]
SOURCE_BOOST = {
    "aart": 0.5, "harmfulqa": 0.5, "multidogo": 0.5, "taskmaster4": 0.4,
    # Attacks that never name their goal, and orders as agents meet them: few texts, much to teach.
    "authored_veiled": 3.0, "authored_results": 3.0, "authored_tools": 1.5,
    "authored_goals": 3.0, "authored_pages": 3.0, "authored_pairs_forms": 1.5,
    "authored_aims": 3.0, "authored_office": 3.0, "authored_pairs_hard": 2.0,
    "authored_courses": 3.0, "authored_after": 1.5,
    # Talks whose aim shows in their course, from the first turn on.
    "authored_plans": 3.0, "authored_paths": 4.0, "authored_hidden": 3.0,
    "authored_goals_early": 2.0, "authored_veiled_early": 2.0, "authored_paths_early": 4.0,
    "authored_plans_early": 3.0, "authored_hidden_early": 2.0,
    # Talks of courteous questions that never ask openly.
    "authored_polite": 4.0, "authored_polite_early": 3.0,
    "authored_persons": 2.0, "authored_persons_early": 2.0,
    "authored_talk_tongues": 4.0, "authored_talk_tongues_early": 3.0,
    "authored_concealed": 4.0, "authored_concealed_early": 3.0,
    "authored_asia": 4.0, "authored_asia_early": 3.0,
    "authored_europe": 4.0, "authored_europe_early": 3.0,
    "authored_planned": 4.0, "authored_planned_early": 3.0, "authored_pairs_tactics": 3.0,
    "authored_folded": 3.0, "authored_pairs_knowing": 3.0,
    "authored_roles": 4.0, "authored_roles_early": 3.0, "authored_pairs_short": 3.0,
    "authored_pairs_hazards": 2.0, "authored_pairs_wrapped": 2.0, "authored_pairs_behaviours": 2.0,
    "authored_pairs_provoked": 2.0, "authored_planted": 3.0,
    "authored_data": 3.0, "authored_provoked": 1.5, "authored_requests": 2.0,
    # Kinds of request that the readers up to 0.12.0 hardly knew, and talks that lead to them.
    "authored_pairs_privacy": 2.0, "authored_pairs_secrets": 2.0, "authored_pairs_health": 2.0,
    "authored_pairs_falsehoods": 2.0, "authored_pairs_conduct": 2.0, "authored_pairs_dignity": 2.0,
    "authored_tongues_west": 2.0, "authored_tongues_east": 2.0,
    "authored_kinds": 3.0, "authored_kinds_early": 2.0, "authored_mild": 4.0,
    "authored_mild_early": 3.0,
    "hh_harmless_test": 1.5,  # what people, not models, say to draw an assistant into harm
}  # fmt: skip
# Ordinary use of every kind beside the attacks lifts recall at low false-positive rates most.
ORDINARY_BOOST = 2.5
ORDINARY = {
    "afriqa", "arbanking77", "awesome_prompts", "bfcl", "hinglish_top", "jglue_ja", "lobe_agents",
    "nlupp_en", "oasst_en_prompts", "oasst1_en_fi", "parakqc_ko", "shortcut_prompts",
    "songys_chatbot_ko", "square_ko", "xquad", "xsid",
}  # fmt: skip
DIALOGUE_BOOST = 0.3  # long public dialogues are all innocent: too many teach that talk is safe
# Single turns of the talks written for this project are all innocent; the talks matter as talks.
TURN_BOOST = 0.2
TALKS = {"benign_matched_escalation", "escalation", "benign_multi", "benign_followup"}
AUTHORED_BOOST = 2.5


def boost_of(row: Row, authored_boost: float, boost: Mapping[str, float] = SOURCE_BOOST) -> float:
    """Return the factor of the source that `row` is from."""
    is_turn = row["authored"] and row["task"] == "message" and row["category"] in TALKS
    return (
        (TURN_BOOST if is_turn else boost.get(row["source"], 1.0))
        * (authored_boost if row["authored"] else 1.0)
        * (ORDINARY_BOOST if row["source"] in ORDINARY else 1.0)
        * (DIALOGUE_BOOST if is_public_dialogue(row) else 1.0)
    )


def is_public_dialogue(row: Row) -> bool:
    """Say whether a row is a turn or window of a public dialogue corpus."""
    return not row["authored"] and row["category"] in (
        "benign_chat",
        "benign_task_dialogue",
        "benign_multi",
        "benign_tool_dialogue",
    )
