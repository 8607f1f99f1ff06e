# Every target sets up what it needs in .venv by itself: `run` only what running needs, the others
# what development needs. Both sets come from locks with hashes (`make lock`). A lock names all that
# it needs: asked to look further, pip takes a newer release of a package with an extra and refuses it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNNABLE := $(VENV)/.runnable
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check
CASES ?= 125000
ROUNDS ?= 100
DATA ?= ../shared/data

.PHONY: run test test-service test-rest check fmt bench fuzz chaos validate e2e e2e-large integrations docs lock sbom licences audit clean

$(RUNNABLE): requirements/run.txt pyproject.toml
	@echo "Setting up $(VENV) with what the service needs (once; a minute after the download)."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes --no-deps -r requirements/run.txt
	$(INSTALL) --quiet --no-deps --no-build-isolation -e .
	@echo "Ready. The command is $(BIN)/promptguard; '. $(BIN)/activate' puts it on your path."
	@touch $@

$(READY): requirements/dev.txt requirements/llm.txt pyproject.toml
	@echo "Setting up $(VENV) with what tests, checks and documentation need (once)."
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --require-hashes --no-deps -r requirements/dev.txt
	$(INSTALL) --quiet --require-hashes --no-deps -r requirements/llm.txt
	$(INSTALL) --quiet --no-deps --no-build-isolation -e .
	@touch $@ $(RUNNABLE)

run: $(RUNNABLE)
	$(BIN)/promptguard serve

# Two halves side by side: each is busy with one core for most of its time.
SERVICE_TESTS := tests/service tests/stores tests/validation tests/contracts tests/e2e
JOBS = $(if $(findstring jobserver,$(MAKEFLAGS)),,--jobs=2)

test: $(READY)
	+$(MAKE) --no-print-directory $(JOBS) test-service test-rest

test-service: $(READY)
	$(BIN)/python -m pytest $(SERVICE_TESTS)

test-rest: $(READY)
	$(BIN)/python -m pytest tests $(addprefix --ignore=,$(SERVICE_TESTS))

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.duplicates
	$(BIN)/python -m tools.dead_code

fmt: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.forward
	$(BIN)/python -m benchmarks.linear_time
	$(BIN)/python -m benchmarks.long_session
	$(BIN)/python -m benchmarks.store_queries --sessions 20000

# A million cases over the eight targets; with atheris in $(VENV), its coverage guides them.
fuzz: $(READY)
	nice $(BIN)/python -m fuzz.run --cases $(CASES)

# Guards killed, restarted, out of disk and with a wrong clock, over SQLite and PostgreSQL.
chaos: $(READY)
	nice $(BIN)/python -m fuzz.chaos --rounds $(ROUNDS)

validate: $(READY)
	$(BIN)/python -m benchmarks.quality $(DATA)
	$(BIN)/python -m benchmarks.model $(DATA)
	$(BIN)/python -m benchmarks.instinct $(DATA)

e2e: $(READY)
	$(BIN)/python -m pytest tests/e2e -m e2e -rs

# Every page over a hundred thousand sessions in each database; the times go to artifacts/.
e2e-large: $(READY)
	PROMPTGUARD_E2E_SESSIONS=100000 $(BIN)/python -m pytest tests/e2e/test_many_sessions.py -m e2e -rs

# The frameworks need environments of their own: some pin what others need newer. FRAMEWORKS names
# those to test; `.ci/run` takes the first two.
FRAMEWORKS ?= integrations integrations-litellm integrations-crewai integrations-pyrit \
  integrations-open-webui
TESTS_integrations := tests/integrations tests/test_readme.py tests/batch/test_scan.py
TESTS_integrations-litellm := $(addprefix tests/integrations/,\
  test_litellm.py test_litellm_proxy.py test_pages.py)
TESTS_integrations-crewai := tests/integrations/test_crewai.py
TESTS_integrations-pyrit := $(addprefix tests/integrations/,\
  test_pyrit.py test_garak.py test_pages.py)
TESTS_integrations-open-webui := $(addprefix tests/integrations/,\
  test_open_webui.py test_open_webui_program.py)
WITHOUT_DEPENDENCIES_integrations-pyrit := requirements/garak.txt
OVERRIDE_integrations-open-webui := --override requirements/without-torch.override

integrations: $(FRAMEWORKS:%=tested-%)
	if command -v node > /dev/null; then node --test packages/vercel-ai/test/; \
	  else echo "Skipped: packages/vercel-ai, because node is not installed."; fi

.PRECIOUS: $(VENV)-%/.ready

tested-%: $(VENV)-%/.ready
	PYTHONPATH=src $(VENV)-$*/bin/python -m pytest -rs --confcutdir=tests/integrations $(TESTS_$*)

$(VENV)-%/.ready: requirements/%.txt requirements/garak.txt | $(READY)
	test -x $(VENV)-$*/bin/python || $(PYTHON) -m venv --without-pip $(VENV)-$*
	$(BIN)/uv pip install --quiet --python $(VENV)-$*/bin/python --require-hashes --no-deps -r $<
	$(foreach lock,$(WITHOUT_DEPENDENCIES_$*),$(BIN)/uv pip install --quiet \
	  --python $(VENV)-$*/bin/python --require-hashes --no-deps -r $(lock))
	@touch $@

# Writes the generated pages, then builds the site into site/; nothing is fetched.
docs: $(READY)
	$(BIN)/python -m docs.settings_page
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

# The run and image locks are constrained by the first, so that what is tested is what runs.
COMPILE = $(BIN)/uv pip compile --quiet --python $(BIN)/python --generate-hashes --strip-extras \
  --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock"
lock: $(READY)
	$(COMPILE) --extra service --extra postgres --extra parquet -o requirements/dev.txt \
	  pyproject.toml requirements/dev.in
	$(COMPILE) --extra service -c requirements/dev.txt -o requirements/run.txt \
	  pyproject.toml requirements/run.in
	$(COMPILE) --extra service --extra postgres -c requirements/dev.txt -o requirements/image.txt \
	  pyproject.toml requirements/run.in
	$(foreach name,$(FRAMEWORKS),$(COMPILE) --extra service $(OVERRIDE_$(name)) \
	  -o requirements/$(name).txt pyproject.toml requirements/$(name).in &&) true
	$(COMPILE) --no-deps -o requirements/garak.txt requirements/garak.in

# What is in the image, as CycloneDX JSON.
sbom: $(READY)
	mkdir -p artifacts
	$(BIN)/cyclonedx-py requirements requirements/image.txt --pyproject pyproject.toml \
	  --output-reproducible --output-format JSON --output-file artifacts/sbom.json

licences: $(READY)
	$(BIN)/python -m tools.licences

# Asks a vulnerability database over the network; nothing else here does.
audit: $(READY)
	$(BIN)/pip-audit --require-hashes --disable-pip -r requirements/image.txt

clean:
	rm -rf $(VENV) $(FRAMEWORKS:%=$(VENV)-%) build dist site artifacts .mypy_cache .ruff_cache .hypothesis
