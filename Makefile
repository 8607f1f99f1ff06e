# Every target sets up what it needs in .venv by itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
REQUIREMENTS := requirements/dev.txt
READY := $(VENV)/.ready

.PHONY: run test check fmt bench fuzz validate e2e docs clean lock

DATA ?= ../shared/data

$(READY): $(REQUIREMENTS) requirements/llm.txt pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/llm.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

run: $(READY)
	$(BIN)/promptguard serve

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.forward
	$(BIN)/python -m benchmarks.linear_time

CASES ?= 200000
fuzz: $(READY)
	nice $(BIN)/python -m fuzz.run --cases $(CASES)

validate: $(READY)
	$(BIN)/python -m benchmarks.quality $(DATA)
	$(BIN)/python -m benchmarks.model $(DATA)
	$(BIN)/python -m benchmarks.instinct $(DATA)

lock: $(READY)
	$(BIN)/python -m pip install --quiet pip-tools
	$(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-emit-index-url \
	  --no-emit-find-links --no-emit-trusted-host --extra service --extra postgres --extra parquet \
	  -o requirements/dev.txt pyproject.toml requirements/dev.in

e2e: $(READY)
	$(BIN)/python -m pytest tests/e2e -m e2e -rs

docs: $(READY)
	$(BIN)/python -m docs.settings_page

clean:
	rm -rf $(VENV) build dist site artifacts .mypy_cache .ruff_cache .hypothesis
