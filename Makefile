# Everything a checkout needs, from Python 3.11 or newer and pip alone. `make` lists what it can do.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help check lint format test selection test-all campaign demo dev docs pictures bench lock clean

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
DEMO := .retention/demo
# Marks of pyproject.toml: what `make test` leaves out.
MORE := again or matrix or kill or program or large or cluster or screen
# A campaign: how many times as much it tries, and the commit since which lines of the package count as changed.
ROUNDS ?= 20
BASE ?= HEAD~1
PIP := -m pip --disable-pip-version-check install --quiet

# JAVA_HOME for the rest of a recipe's line; where there is no Java to be had, the line ends with what to do.
WITH_JAVA := JAVA_HOME="$$(.ci/java)" && export JAVA_HOME &&

help: ## List these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

check: lint ## Lint, types, and the tests that need neither Spark nor patience
	@$(BIN)/python -m pytest --quiet -m "not spark and not long" --numprocesses 2 --dist worksteal --no-loadscope-reorder

lint: $(READY) ## Lint and types alone
	@$(BIN)/python -m ruff check --quiet
	@$(BIN)/python -m mypy --no-error-summary

format: $(READY) ## Lay the code out, and mend what the linter can mend safely
	@$(BIN)/python -m ruff check --quiet --fix
	@$(BIN)/python -m ruff format --quiet

# A dozen programs of the tests start a Spark, which takes half as long from an archive of its classes. It is made once.
PYTEST := $(WITH_JAVA) SPARK_SUBMIT_OPTS="$$(.ci/class_archive $(BIN)/python "$(CURDIR)/.venv/class-archive")" && \
	export SPARK_SUBMIT_OPTS && $(BIN)/python -m pytest --quiet --numprocesses 3 --dist loadfile --no-loadscope-reorder

# Laws and seeds half as often as in test-all.
test: lint ## Lint, types, and every promise once, on Java 17 or 21
	@export RETENTION_ROUNDS=0.5 && $(PYTEST) -m "not ($(MORE))" --junitxml .venv/tests.xml
	@$(BIN)/python -m retention_assets_tests.slowest .venv/tests.xml

# From all that `make test` would try without the list; what is newer than the list is tried in full until then.
selection: $(READY) ## Choose anew what `make test` tries, by the lines of the package that each test runs
	@rm -rf .venv/lines
	@export RETENTION_ROUNDS=0.5 && $(PYTEST) -p retention_assets_tests.selection -m "not ($(subst again or ,,$(MORE)))" --junitxml .venv/tests.xml
	@$(BIN)/python -m retention_assets_tests.selection .venv/tests.xml

# In one go: side by side with what is quick, what is long costs least.
test-all: lint ## The same with further databases, kills, Pythons, clusters and pages
	@$(PYTEST) --junitxml .venv/tests.xml
	@$(BIN)/python -m retention_assets_tests.slowest .venv/tests.xml

campaign: $(READY) ## For nights: kills, laws and seeds ROUNDS times as much, then harmful changes to what is newer than BASE
	@export RETENTION_ROUNDS=$(ROUNDS) && $(PYTEST) $$(grep -rl --include='test_*.py' 'retention_assets_tests.rounds' retention_assets_tests)
	@$(WITH_JAVA) $(BIN)/python -m retention_assets_tests.mutants --base "$(BASE)" --count $$((2 * $(ROUNDS)))

demo: $(READY) ## An environment with histories, judged by Dagster on Spark, and why
	@$(WITH_JAVA) $(BIN)/retention demo

# Two of Dagster's programs that open a fresh home at once crash, so the demo has opened it before. The flags: docs/automation.md,
# "Where Dagster keeps its events".
dev: $(READY) $(DEMO)/retention.yaml ## Dagster's pages on the demo, at http://127.0.0.1:3000: it sweeps what is due there, and asks first
	@$(WITH_JAVA) DAGSTER_HOME="$$(pwd)/$(DEMO)/dagster" RETENTION_CONFIG="$$(pwd)/$(DEMO)/retention.yaml" && \
	export DAGSTER_HOME RETENTION_CONFIG DAGSTER_EMIT_PARTITION_SUBSET_IN_PLANNED_EVENTS=1 DAGSTER_EVENT_BATCH_SIZE=1000 && \
	exec $(BIN)/python -c 'from pathlib import Path; from retention_assets.demo.environment import open_dagster; open_dagster(Path("$(DEMO)"))'

$(DEMO)/retention.yaml: | $(READY)
	@$(MAKE) --no-print-directory demo

# Without --quiet: it would silence the very warnings that --strict counts. The variable leaves out an advertisement of the theme.
docs: $(READY) ## The site of docs/ in site/, with every link checked; docs/commands.md is written anew
	@$(BIN)/python docs/generate_commands.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

pictures: $(READY) ## Take the pictures of the documents anew, in Chromium
	@$(WITH_JAVA) .ci/chromium >/dev/null && \
	RETENTION_PICTURES=docs/pictures $(BIN)/python -m pytest --quiet retention_assets_tests/screens

bench: $(READY) ## Measure speed on this machine
	@$(WITH_JAVA) $(BIN)/python -m benchmarks

# Resolved with the oldest Python there is to support: what runs on it has wheels for the newer ones, not the other way round.
# The build backends (hatchling; setuptools and wheel, with which pyspark is built) are installed to be pinned with the rest.
lock: ## Pin every package anew in constraints.txt, from a clean resolution
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	{ echo "Pins are made with the oldest Python that is supported: make lock PYTHON=python3.11" >&2; exit 1; }
	@rm -rf .venv-lock && .ci/venv "$(PYTHON)" .venv-lock
	@.venv-lock/bin/python $(PIP) --upgrade hatchling editables setuptools wheel
	@.venv-lock/bin/python $(PIP) --editable '.[dev]'
	@grep '^#' constraints.txt > constraints.txt.new
	@.venv-lock/bin/python -m pip freeze --all --exclude-editable | grep -v '^pip==' >> constraints.txt.new
	@mv constraints.txt.new constraints.txt && rm -rf .venv-lock

clean: ## Remove .venv and caches; .retention stays, it holds the ledger
	@rm -rf .venv .venv-lock .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist site
	@find .ci benchmarks docs retention_assets retention_assets_tests -name __pycache__ -type d -prune -exec rm -rf {} +

# PIP_BUILD_CONSTRAINT is where newer pips look for the pins of build backends, PIP_CONSTRAINT where older ones do.
$(READY): pyproject.toml constraints.txt
	@.ci/venv "$(PYTHON)" .venv
	@echo "Installing into .venv what constraints.txt pins: a minute or two, once …" >&2
	@PIP_BUILD_CONSTRAINT=constraints.txt PIP_CONSTRAINT=constraints.txt $(BIN)/python $(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@
