"""`/v1/rubric`: does the assistant contradict itself?"""

from fake_answers import FakeAnswers
from guarded_service import assistant

SHIFTED = [
    {"role": "user", "content": "Which port?"},
    assistant("The port is 80."),
    {"role": "user", "content": "Sure?"},
    assistant("The port is 443."),
]


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
    assert (found["ground"], found["probability"]) == ("rules", None)
    assert len(found["positions"]) == 2
    bad = await guard.client.post("/v1/rubric", json={"messages": [{"role": "x"}]})
    assert bad.status_code == 400


async def test_the_rubric_asks_the_reader_unless_told_not_to(guarded, monkeypatch) -> None:
    """`reader: false` is for rules alone; the answer says whose verdict it is."""
    reader = FakeAnswers(lambda _: 0.93)
    monkeypatch.setattr("promptguard.service.routes.guard.shared_readers", lambda: reader)
    guard = await guarded()
    read = (await guard.client.post("/v1/rubric", json={"messages": SHIFTED})).json()
    assert read["contradicts_itself"] is True
    assert (read["ground"], read["probability"]) == ("reader", 0.93)
    assert [turn["position"] for turn in read["positions"]] == ["unclear", "unclear"]
    body = {"messages": SHIFTED, "reader": False}
    ruled = (await guard.client.post("/v1/rubric", json=body)).json()
    assert (ruled["verdict"], ruled["ground"]) == ("unclear", None)
    assert len(reader.asked) == 1
    bad = await guard.client.post("/v1/rubric", json={"messages": SHIFTED, "reader": "maybe"})
    assert bad.status_code == 422


async def test_a_guard_without_the_model_asks_no_reader(guarded, monkeypatch) -> None:
    """`use_model: false` holds for the rubric as well."""
    reader = FakeAnswers(lambda _: 0.93)
    monkeypatch.setattr("promptguard.service.routes.guard.shared_readers", lambda: reader)
    guard = await guarded(conversation={"use_model": False})
    found = (await guard.client.post("/v1/rubric", json={"messages": SHIFTED})).json()
    assert found["verdict"] == "unclear"
    assert not reader.asked
