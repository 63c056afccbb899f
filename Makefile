# Two commands matter: `make reproduce` and `make test`. Both set up their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help reproduce test test-all lint format gpu-check clean

help: ## Show these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "gapless needs Python 3.11 or newer: '$(PYTHON)' is not on the PATH; install it or run make PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gapless needs Python 3.11 or newer, and $(PYTHON) is older; run make PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot create environments; install its venv package (Debian: apt-get install python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

reproduce: $(STAMP) ## Measure the three published fixes on this machine (about 4 minutes)
	$(BIN)/gapless reproduce --quick

lint: $(STAMP) ## Format check, lint, types and import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## Lint and the tests that run without a GPU in a few minutes
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) -m "not slow and not gpu"

test-all: lint ## Every test this machine can run
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS)

format: $(STAMP) ## Rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gpu-check: ## On a GPU machine: GPU tests and records, with the Python at hand, in at most 8 minutes
	$(PYTHON) -m gapless.gpu_check

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
