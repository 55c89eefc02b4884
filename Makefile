# Everything that a contributor or CI runs. `make` alone prints the targets.

SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Options for the command behind a target: make test ARGS="-k doctor"
ARGS ?=
ROUNDS ?= 3
# Seeds of `make chaos`, which needs no Spark.
CHAOS_SEEDS := $(if $(filter command environment,$(origin SEEDS)),$(SEEDS),1000)
# Seeds of `make chaos-real`, which starts real processes: SEEDS=50 runs 50 seeds, SEED=7 repeats one.
REAL_SEEDS := $(if $(filter command environment,$(origin SEEDS)),$(SEEDS),50)

# Another release of Spark, next to the one of constraints.txt.
OTHER_SPARK := $(VENV)/spark-$(VERSION)

# Hides the addresses of package indexes in the output of pip.
REDACT := sed -E -e '/Looking in (indexes|links):/d' -e 's|https?://[^ ,;)]+|<address>|g' \
	-e "s|host='[^']*'|host=<address>|g"

.DEFAULT_GOAL := help
.PHONY: help setup demo lint style format test test-full test-spark check soak chaos chaos-real bench reproduce tables recordings clean

help: ## Print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Create .venv with all packages; find or install Java
	@scripts/ensure-java

demo: setup ## Join live synthetic streams and check the result
	@$(BIN)/spillway demo $(ARGS)

lint: style ## Check format, style, layers, types, and that every test can be collected
	@$(BIN)/python -m pytest --collect-only --quiet >.collected 2>&1 || { cat .collected; exit 1; }
	@rm -f .collected

# Without the collection of tests, which a run of the tests does itself.
style: setup
	@$(BIN)/python -m ruff format --check .
	@$(BIN)/python -m ruff check .
	@$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -m mypy

format: setup ## Format the code and apply the safe fixes
	@$(BIN)/python -m ruff format .
	@$(BIN)/python -m ruff check --fix .

test: style ## Lint, then run the tests of the quick tier (ARGS="..." goes to pytest)
	@scripts/ensure-chromium
	@$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

# The full tier draws the same examples every time, so it judges the change under test. `make soak` draws
# new ones and is not part of it.
test-full: style ## Lint, then run all tests: every step, every operator, many examples (an hour or two)
	@scripts/ensure-chromium
	@FULL=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-spark: setup ## Run the tests that use Spark on another release: make test-spark VERSION=4.3.0
	@test -n "$(VERSION)" || { echo "error: name the release: make test-spark VERSION=4.3.0" >&2; exit 1; }
	@set -o pipefail; test -d $(OTHER_SPARK)/pyspark || $(BIN)/python -m pip install --quiet \
		--disable-pip-version-check --no-input --target $(OTHER_SPARK) pyspark==$(VERSION) 2>&1 | $(REDACT)
	@PYTHONPATH=$(abspath $(OTHER_SPARK)) $(BIN)/python -c 'import pyspark, sys; \
		sys.exit(pyspark.__version__ != "$(VERSION)")' || { echo "error: pyspark $(VERSION) is not installed" >&2; exit 1; }
	@PYTHONPATH=$(abspath $(OTHER_SPARK)) $(BIN)/python -m pytest --numprocesses 2 --dist loadfile \
		--no-loadscope-reorder tests/spark tests/cluster $(ARGS)

check: test ## Run exactly what CI runs

soak: setup ## Run property, simulation and cluster tests on new random examples, ROUNDS times
	@for round in $$(seq $(ROUNDS)); do \
		SOAK=1 $(BIN)/python -m pytest tests/property tests/simulation tests/cluster $(ARGS) || exit 1; \
	done

chaos: setup ## Inject simulated failures into queries, for SEEDS seeds; compare with brute force
	@$(BIN)/spillway chaos --seeds $(CHAOS_SEEDS) --jobs 2 $(ARGS)

chaos-real: setup ## Kill and stop real processes of queries, for SEEDS seeds or one SEED
	@$(if $(SEED),SEED=$(SEED),SEEDS=$(REAL_SEEDS)) $(BIN)/python -m pytest tests/cluster/test_disasters.py -s $(ARGS)

bench: setup ## Compare Spillway with Spark's own join
	@$(BIN)/spillway bench $(ARGS)

reproduce: setup ## Reproduce the papers' figures and write docs/reproduction.md
	@$(BIN)/spillway reproduce --out bench/reproduction --page docs/reproduction.md $(ARGS)

tables: setup ## Write the README's tables from bench/results, and the diagrams of moves
	@$(BIN)/python -m spillway_lab.bench.tables bench/results README.md
	@$(BIN)/python -m spillway_lab.diagrams docs/architecture.md

recordings: setup ## Write docs/recordings: simulated runs of each paper's mechanism as pages
	@$(BIN)/python -m spillway_lab.simulator.recordings docs/recordings

clean: ## Remove caches and build results (.venv stays)
	@rm -rf build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -rf spark-warehouse metastore_db derby.log
	@find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

# The exact versions are those of Python 3.11 and newer; 3.10 resolves within pyproject's bounds.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null || { \
		echo "error: $(PYTHON) is not Python 3.10 or newer; choose one, for example: make setup PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "error: $(PYTHON) cannot create virtual environments; install its venv module (Debian, Ubuntu: apt-get install python3-venv)" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@echo "Installing spillway and its development tools into $(VENV)"
	@set -o pipefail; \
	exact=$$($(BIN)/python -c 'import sys; print("-c constraints.txt" * (sys.version_info >= (3, 11)))'); \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-input $$exact -e '.[dev]' 2>&1 | $(REDACT)
	@touch $@
