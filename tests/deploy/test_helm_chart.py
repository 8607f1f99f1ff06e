"""The Helm chart is whole: values exist and are used, templates are Kubernetes objects."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import promptguard
from promptguard.config import load_settings
from promptguard.service.auth import check_host

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "promptguard"
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
SECRETS = {
    "DATABASE_URL": "postgresql://promptguard:x@postgres/promptguard",
    "GUARD_KEY_SHA256": "a" * 64,
    "OPERATOR_KEY_SHA256": "b" * 64,
}


@pytest.fixture(scope="module")
def values() -> dict:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def test_the_chart_has_the_version_of_the_package() -> None:
    """So that the chart of a release starts the image of that release."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == promptguard.__version__
    assert (
        yaml.safe_load((CHART / "values.yaml").read_text())["image"]["tag"]
        == promptguard.__version__
    )


def test_every_value_of_a_template_has_a_default(values) -> None:
    """A misspelt name would render as nothing."""
    for name in used_values():
        assert name in set(paths_of(values)), name


def test_every_default_is_used(values) -> None:
    """A setting without effect misleads."""
    used = used_values()
    for name in values:
        assert any(item.split(".")[0] == name for item in used), name


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.stem)
def test_each_template_is_a_kubernetes_object(template, values) -> None:
    """Read as YAML, with the actions filled in."""
    found = yaml.safe_load(filled(template.read_text()))
    assert found["apiVersion"]
    assert found["kind"]
    assert found["metadata"]["name"]
    assert found["metadata"]["labels"]


@pytest.mark.parametrize("template", [*TEMPLATES, CHART / "templates" / "_names.tpl"], ids=str)
def test_blocks_are_closed(template) -> None:
    """As many ends as beginnings."""
    text = template.read_text()
    opened = len(re.findall(r"\{\{-?\s*(?:if|with|range|define)\b", text))
    assert opened == len(re.findall(r"\{\{-?\s*end\b", text))


def test_included_parts_are_defined() -> None:
    """In _names.tpl."""
    defined = set(re.findall(r'define "([^"]+)"', (CHART / "templates" / "_names.tpl").read_text()))
    included = {
        name for path in TEMPLATES for name in re.findall(r'include "([^"]+)"', path.read_text())
    }
    assert included == defined


def test_the_configuration_is_valid(values, tmp_path) -> None:
    """With exactly the variables that the comment on the Secret names."""
    file = tmp_path / "promptguard.yaml"
    file.write_text(yaml.safe_dump(values["config"]))
    settings = load_settings(file, SECRETS)
    check_host(settings.service.host, settings.service.keys)
    assert not settings.service.demo
    assert values["terminationGracePeriodSeconds"] > settings.service.shutdown_s
    text = (CHART / "values.yaml").read_text()
    assert set(re.findall(r"\$\{(\w+)\}", text)) == set(SECRETS)
    assert all(f"{name}," in text for name in SECRETS)


def test_pods_run_as_nobody_with_probes() -> None:
    """No root, no write outside volumes, readiness and liveness asked."""
    pod = yaml.safe_load(filled((CHART / "templates" / "deployment.yaml").read_text()))
    spec = pod["spec"]["template"]["spec"]
    (guard,) = spec["containers"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert guard["securityContext"]["readOnlyRootFilesystem"]
    assert guard["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert guard["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert guard["livenessProbe"]["httpGet"]["path"] == "/healthz"
    mounted = {mount["name"] for mount in guard["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}


def used_values() -> set[str]:
    """Return every path after `.Values.` in the templates."""
    texts = [path.read_text() for path in (CHART / "templates").iterdir()]
    return {name for text in texts for name in re.findall(r"\.Values\.([\w.]+)", text)}


def paths_of(values: dict, prefix: str = "") -> Iterator[str]:
    """Return every path of a nested mapping."""
    for name, value in values.items():
        yield prefix + name
        if isinstance(value, dict):
            yield from paths_of(value, f"{prefix}{name}.")


def filled(template: str) -> str:
    """Return the template as YAML: control lines dropped, blocks and values by stand-ins."""
    lines = []
    for line in template.splitlines():
        block = re.fullmatch(r"\s*\{\{-? .*nindent (\d+) \}\}", line)
        if block:
            lines.append(" " * int(block[1]) + "filled: true")
        elif not re.fullmatch(r"\s*\{\{-? (?:if|with|range|end)\b.*\}\}", line):
            lines.append(re.sub(r"\{\{.*?\}\}", "filled", line))
    return "\n".join(lines)
