# Two commands matter: `make reproduce` and `make test`. Both set up their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST_WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help reproduce test test-all test-wheel matrix test-browser screenshots lint format docs gpu-check clean

help: ## Show these targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 14

# Installs again only when one of these two files changed.
$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "gapless needs Python 3.11 or newer: '$(PYTHON)' is not on the PATH; install it or run make PYTHON=/path/to/python3."; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "gapless needs Python 3.11 or newer, and $(PYTHON) is older; run make PYTHON=/path/to/python3.11."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) cannot create environments; install its venv package (Debian: apt-get install python3-venv)."; exit 1; }
	@echo "Setting up $(VENV) with torch, transformers and the tools; this takes a few minutes, once."
	@$(PYTHON) -m venv $(VENV) || { echo "The environment $(VENV) cannot be created; check that this folder can be written to."; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' || { echo "The packages could not be installed; the lines above say which one: check the network and the free disk space (7 GB where torch is a CUDA build), then run make again."; exit 1; }
	@touch $@

reproduce: $(STAMP) ## Measure the three published fixes on this machine (about 4 minutes)
	@$(BIN)/gapless reproduce --quick

lint: $(STAMP) ## Check format, lint, types and import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: lint ## Lint, and the tests that run without a GPU in a few minutes
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) -m "not slow and not gpu and not browser"

test-all: lint ## Lint, and every test that this machine can run
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS)

test-wheel: $(STAMP) ## The commands and pages once more, from the built wheel in another folder
	$(BIN)/python -m tests.wheel.run

matrix: $(STAMP) ## Other versions and builds, each in a fresh environment (ROWS="lowest cuda"); gigabytes
	$(BIN)/python -m tests.matrix $(ROWS)

test-browser: $(STAMP) ## The dashboard in Chromium, which apt-get brings where it may
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,browser]'
	@command -v chromium >/dev/null || { apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || echo "No Chromium could be installed: the browser tests are skipped."
	$(BIN)/python -m pytest -q tests/browser

screenshots: $(STAMP) ## Take the pictures in docs/img again from the shipped results; look at them
	$(BIN)/python -m tests.browser.screenshots

format: $(STAMP) ## Rewrite the code in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(STAMP) ## Write docs/cli.md and the README's table again from the program and its records
	$(BIN)/python docs/generate.py

gpu-check: ## On a GPU machine: GPU tests and records, with the Python at hand, in at most 8 minutes
	@$(PYTHON) -m gapless.gpu_check

clean: ## Remove the environment and caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
