"""Compose file, image and proxy agree with each other, with the code and with the documentation."""

import re
from pathlib import Path

import pytest
import yaml

from promptguard.config import load_settings
from promptguard.service.auth import check_host

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
ENV = {
    "DATABASE_URL": "postgresql://promptguard:x@postgres:5432/promptguard",
    "UPSTREAM": "http://model.internal/v1",
    "GUARD_KEY_SHA256": "a" * 64,
    "OPERATOR_KEY_SHA256": "b" * 64,
}


@pytest.fixture(scope="module")
def compose() -> dict:
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def containerfile() -> str:
    return (DEPLOY / "Containerfile").read_text()


def test_the_configuration_is_valid_and_may_listen_to_others() -> None:
    """With exactly the variables that the compose file sets."""
    settings = load_settings(DEPLOY / "promptguard.yaml", ENV)
    check_host(settings.service.host, settings.service.keys)
    assert not settings.service.demo


def test_every_variable_of_the_configuration_is_set(compose) -> None:
    """And none is set that it does not use."""
    used = set(re.findall(r"\$\{(\w+)\}", (DEPLOY / "promptguard.yaml").read_text()))
    assert set(compose["services"]["guard"]["environment"]) == used == set(ENV)


def test_three_guards_share_one_database_behind_one_proxy(compose) -> None:
    """The database's name, user and password are the ones the guards use."""
    services = compose["services"]
    assert services["guard"]["deploy"]["replicas"] == 3
    assert "ports" not in services["guard"]
    assert "ports" not in services["postgres"]
    url = services["guard"]["environment"]["DATABASE_URL"]
    database = services["postgres"]["environment"]
    assert url.startswith(f"postgresql://{database['POSTGRES_USER']}:${{POSTGRES_PASSWORD")
    assert url.endswith(f"@postgres:5432/{database['POSTGRES_DB']}")
    assert set(services["guard"]["depends_on"]) == {"postgres"}
    assert set(services["proxy"]["depends_on"]) == {"guard"}


def test_ports_agree(compose, containerfile) -> None:
    """Configuration, image, health check and proxy speak of one port."""
    port = load_settings(DEPLOY / "promptguard.yaml", ENV).service.port
    assert f"EXPOSE {port}\n" in containerfile
    assert f"http://127.0.0.1:{port}/readyz" in containerfile
    proxy = (DEPLOY / "Caddyfile").read_text()
    assert f"dynamic a guard {port}" in proxy
    (published,) = compose["services"]["proxy"]["ports"]
    assert f":{published.split(':')[1]} {{" in proxy


def test_mounted_files_exist_where_the_image_looks(compose, containerfile) -> None:
    """The configuration is mounted at the path in PROMPTGUARD_CONFIG."""
    mounts = [m for s in compose["services"].values() for m in s.get("volumes", ())]
    for source, *_ in (mount.split(":") for mount in mounts):
        if source.startswith("."):
            assert (DEPLOY / source).is_file(), source
        else:
            assert source in compose["volumes"]
    place = re.search(r"PROMPTGUARD_CONFIG=(\S+)", containerfile)[1]
    assert any(place in mount for mount in compose["services"]["guard"]["volumes"])


def test_the_image_is_built_from_files_that_are_sent_to_the_builder(compose, containerfile) -> None:
    """They exist and .dockerignore lets them through."""
    build = compose["services"]["guard"]["build"]
    root = (DEPLOY / build["context"]).resolve()
    assert (root / build["dockerfile"]).is_file()
    sent = {line[1:] for line in lines_of(root / ".dockerignore") if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", containerfile, flags=re.MULTILINE)
    names = {name for line in copied for name in line.split()}
    for name in names:
        assert (root / name).exists(), name
    assert {name.split("/")[0] for name in names} == sent


def test_the_image_installs_from_the_lock(containerfile) -> None:
    """Every package by hash, the package itself without fetching anything, run as no root."""
    installs = re.findall(r"pip install (.+)$", containerfile, flags=re.MULTILINE)
    assert [("--require-hashes" in line, "--no-deps" in line) for line in installs] == [
        (True, True),
        (False, True),
    ]
    assert "-r requirements/image.txt" in installs[0]
    assert re.search(r"^USER (?!root)", containerfile, flags=re.MULTILINE)


def test_base_images_are_named_by_digest(compose, containerfile) -> None:
    """No tag stands in a file that is built or started; deploy/pin-images writes the digests."""
    bases = re.findall(r"^FROM (\S+)", containerfile, flags=re.MULTILINE)
    assert set(bases) == {"${PYTHON_IMAGE}"}
    images = {name: service["image"] for name, service in compose["services"].items()}
    assert images.pop("guard") == "promptguard:latest"
    assert compose["services"]["guard"]["build"]["args"].keys() == {"PYTHON_IMAGE"}
    variables = {
        "PYTHON_IMAGE",
        *(re.match(r"\$\{(\w+):\?", value)[1] for value in images.values()),
    }
    written = set(re.findall(r'echo "(\w+)=\$\(pinned', (DEPLOY / "pin-images").read_text()))
    assert written == variables


def test_turns_in_flight_have_time_to_finish(compose) -> None:
    """The container is given longer than the service takes."""
    grace = int(compose["services"]["guard"]["stop_grace_period"].removesuffix("s"))
    assert grace > load_settings(DEPLOY / "promptguard.yaml", ENV).service.shutdown_s


def test_the_proxy_takes_no_larger_bodies_than_the_guard() -> None:
    """So that the guard's own limit is the one that is told."""
    size = int(re.search(r"max_size (\d+)MB", (DEPLOY / "Caddyfile").read_text())[1])
    limit = load_settings(DEPLOY / "promptguard.yaml", ENV).service.max_body_bytes
    assert size * 1024 * 1024 <= limit


def test_the_documentation_names_the_files() -> None:
    """Every file and folder under deploy/, by its path."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    for file in DEPLOY.iterdir():
        if file.name != "images.env":
            assert f"deploy/{file.name}" in page


def lines_of(path: Path) -> list[str]:
    """Return the lines that are no comments."""
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
