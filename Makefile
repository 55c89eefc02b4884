# Everything a contributor or the CI runs. `make` alone prints the targets.

SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Options for the command behind a target: make test ARGS="-k doctor"
ARGS ?=
ROUNDS ?= 3

# What pip says may not show the address of a package index.
REDACT := sed -E -e '/Looking in (indexes|links):/d' -e 's|https?://[^ ,;)]+|<address>|g' \
	-e "s|host='[^']*'|host=<address>|g"

.DEFAULT_GOAL := help
.PHONY: help setup demo lint format test test-full check soak bench reproduce tables clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with everything needed; find or install Java
	@scripts/ensure-java

demo: setup ## Run the demonstration query on live synthetic streams
	@$(BIN)/spillway demo $(ARGS)

lint: setup ## Check format, style, layers and types
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m ruff check .
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m mypy

format: setup ## Format the code and apply the safe fixes
	@$(BIN)/python -m ruff format .
	@$(BIN)/python -m ruff check --fix .

test: setup lint ## Lint, then run the tests (ARGS="..." goes to pytest)
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-full: setup lint ## The whole matrix: every step, every operator, many examples (an hour or two)
	@FULL=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

check: test ## Exactly what the CI runs

soak: setup ## Property tests on new random examples, kills at every step, ROUNDS times
	@for round in $$(seq $(ROUNDS)); do \
		SOAK=1 $(BIN)/python -m pytest tests/property tests/simulation tests/cluster $(ARGS) || exit 1; \
	done

bench: setup ## Compare with Spark's own join, side by side
	@$(BIN)/spillway bench $(ARGS)

reproduce: setup ## Make the papers' figures again, and docs/reproduction.md
	@$(BIN)/spillway reproduce --out bench/reproduction --page docs/reproduction.md $(ARGS)

tables: setup ## Write the README's table from bench/results, and the diagrams of moves
	@$(BIN)/python -m spillway_lab.bench.tables bench/results README.md
	@$(BIN)/python -m spillway.protocols.diagram docs/architecture.md

clean: ## Remove caches and build results (.venv stays)
	@rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

# The exact versions are those of Python 3.11 and newer; 3.10 resolves within pyproject's bounds.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
		echo "error: $(PYTHON) is not Python 3.10 or newer; name one: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: $(PYTHON) cannot make virtual environments; install them (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing spillway and its development tools into $(VENV)"
	@set -o pipefail; \
	exact=$$($(BIN)/python -c 'import sys; print("-c constraints.txt" * (sys.version_info >= (3, 11)))'); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input $$exact -e '.[dev]' 2>&1 | $(REDACT)
	@touch $@
