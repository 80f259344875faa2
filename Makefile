.DEFAULT_GOAL := help
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: help
help:  ## List every command
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | column -t -s '|'

.PHONY: run
run: setup  ## Install and start Zembil here (zembil dev); ARGS="--port 0" adds options
	@exec $(BIN)/zembil dev $(ARGS)

.PHONY: setup
setup: $(INSTALLED)  ## Install into .venv, nothing else

$(INSTALLED): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Zembil needs Python 3.11 or newer; set PYTHON=/path/to/it" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { echo "Python cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "Installing into .venv (once) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: test
test: setup tools  ## Install and run the whole suite
	@$(BIN)/pytest -n 2 --dist worksteal

.PHONY: test-unit
test-unit: setup  ## Run the tests that take seconds
	@$(BIN)/pytest tests/unit -q

.PHONY: check
check: format-check lint types imports test  ## Everything that a change must pass

.PHONY: format
format: setup  ## Format the code
	@$(BIN)/ruff format && $(BIN)/ruff check --fix

.PHONY: format-check
format-check: setup
	@$(BIN)/ruff format --check

.PHONY: lint
lint: setup  ## Find mistakes
	@$(BIN)/ruff check

.PHONY: types
types: setup  ## Check the types
	@$(BIN)/basedpyright

.PHONY: imports
imports: setup  ## Check that imports point only down
	@$(BIN)/lint-imports

.PHONY: tools
tools: setup  # What the tests run besides Python; as root on Debian it is installed here
	@ensure() { \
		for program in $$1; do command -v "$$program" >/dev/null && return; done; \
		test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq && \
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$2 >/dev/null || \
		echo "Some tests will fail. On Debian: apt-get install $$2" >&2; \
	}; \
	ensure "chromium chromium-browser google-chrome" "chromium fonts-noto-core"; \
	ensure node nodejs; ensure npm "--no-install-recommends npm"; ensure php php-cli
	@$(BIN)/python tests/support/verifiers/fetch.py

.PHONY: bench
bench: setup  ## Measure the speeds, side by side with PostgreSQL's own
	@$(BIN)/python -m benchmarks

.PHONY: prove
prove: setup  ## The long proofs: kills, races and fuzzing at full length
	@ZEMBIL_PROVE=1 $(BIN)/pytest -n 2 -m prove

.PHONY: messages
messages: setup  ## Put new sentences of the payer's pages into the catalogues, to be translated
	@$(BIN)/python -m tests.support.messages

.PHONY: fuzz
fuzz: setup  ## Send the API what its reference allows and forbids; SECONDS=1800 says for how long
	@ZEMBIL_PROVE=1 ZEMBIL_FUZZ_SECONDS=$(or $(SECONDS),1800) $(BIN)/pytest -m prove -s tests/acceptance/test_schemathesis.py

.PHONY: lock
lock: setup  ## Pin the newest versions into requirements.lock
	@$(BIN)/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--group dev pyproject.toml -o requirements.lock
