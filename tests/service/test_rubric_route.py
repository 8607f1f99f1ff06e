"""`/v1/rubric`: does the assistant contradict itself?"""

from guarded_service import assistant


async def test_the_rubric_answers_with_its_grounds(guarded) -> None:
    """A reversed position without a word about the change."""
    guard = await guarded()
    said = [
        {"role": "user", "content": "Is the museum open on Mondays?"},
        assistant("Yes, the museum is open on Mondays."),
        {"role": "user", "content": "Is the museum open on Mondays?"},
        assistant("No, the museum is not open on Mondays."),
    ]
    found = (await guard.client.post("/v1/rubric", json={"messages": said})).json()
    assert found["contradicts_itself"] is True
    assert len(found["positions"]) == 2
    bad = await guard.client.post("/v1/rubric", json={"messages": [{"role": "x"}]})
    assert bad.status_code == 400
