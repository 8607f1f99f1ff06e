"""Alert rules and dashboard speak of metrics that the service really has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from promptguard.service.telemetry import Telemetry

DEPLOY = Path(__file__).parents[2] / "deploy"
METRIC = re.compile(r"\bpromptguard_\w+")


@pytest.fixture(scope="module")
def metrics() -> set[str]:
    """Every name under which Prometheus stores a metric of the service."""
    return set(stored_names(Telemetry().exposition().body.decode()))


@pytest.fixture(scope="module")
def rules() -> list[dict]:
    (group,) = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    return group["rules"]


@pytest.fixture(scope="module")
def dashboard() -> dict:
    return json.loads((DEPLOY / "grafana" / "promptguard.json").read_text())


def test_alerts_name_existing_metrics(rules, metrics) -> None:
    """An alert on a metric that nobody writes never fires."""
    for rule in rules:
        found = set(METRIC.findall(rule["expr"]))
        assert found, rule["alert"]
        assert found <= metrics, rule["alert"]


def test_alerts_say_what_to_do(rules) -> None:
    """Each has a name of its own, a severity, what happened and where to look."""
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert set(rule["annotations"]) == {"summary", "action"}


def test_panels_name_existing_metrics(dashboard, metrics) -> None:
    """And every metric of the service is on some panel."""
    shown = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            found = set(METRIC.findall(target["expr"]))
            assert found
            assert found <= metrics, panel["title"]
            shown |= found
    unshown = {name for name in metrics if not name.endswith(("_sum", "_count", "_created"))}
    assert unshown <= shown


def test_panels_stand_side_by_side(dashboard) -> None:
    """Each has a number and a place of its own, and takes the data source that is chosen."""
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["datasource"]["uid"] == "${datasource}"
    assert {item["name"] for item in dashboard["templating"]["list"]} == {"datasource", "job"}


def test_expressions_are_balanced(rules, dashboard) -> None:
    """Brackets, braces and quotes close."""
    texts = [rule["expr"] for rule in rules]
    texts += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    for text in texts:
        for opening, closing in ("()", "[]", "{}"):
            assert text.count(opening) == text.count(closing), text
        assert text.count('"') % 2 == 0, text


def stored_names(exposition: str) -> Iterator[str]:
    """Return the names of the samples that a metric has, also where it has none yet."""
    for family in text_string_to_metric_families(exposition):
        if family.type == "counter":
            yield f"{family.name}_total"
        elif family.type == "histogram":
            yield from (f"{family.name}_{part}" for part in ("bucket", "sum", "count"))
        else:
            yield family.name
