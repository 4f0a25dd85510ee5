# `make help` lists what there is to do.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The Python that the virtual environment is made from.
PYTHON ?= python3

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CLASS_ARCHIVE := $(VENV)/spark-classes.jsa
KAFKA_CLASS_ARCHIVE := $(VENV)/kafka-classes.jsa
COMPILED := $(VENV)/.compiled

# Arguments for the commands behind the targets, e.g. make bench BENCH_ARGS="--rows 1000000".
DEMO_ARGS ?=
TEST_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=
LOCK_ARGS ?=

CORES := $(shell getconf _NPROCESSORS_ONLN)
# Each process has a stretch of the tests, and takes from others what they have not come to: tests of a file share what is
# imported, compiled and made for them.
DISTRIBUTION := --dist worksteal
# Some tests wait for servers that are gone: one process more than there are cores. With two more, all took a quarter longer.
QUICK_DISTRIBUTION := -n $(shell echo $$(($(CORES) + 1))) $(DISTRIBUTION)
# Tests with Spark wait much, for small jobs and for processes that start: three of them at a time. What costs
# a run of Spark is made once for all processes (tests/sharing.py).
SPARK_DISTRIBUTION := -n 3 $(DISTRIBUTION)
QUICK_TESTS := tests/contracts tests/flows tests/test_architecture.py tests/unit
SPARK_TESTS := tests/docs tests/spark

.PHONY: help setup demo test test-lab check look lint bench soak docs format lock clean java servers kafka

help: ## Show this list
	@echo "Anabranch: keyed, stateful streaming on Apache Spark"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  More arguments: DEMO_ARGS, TEST_ARGS, BENCH_ARGS, SOAK_ARGS, LOCK_ARGS; another Python: PYTHON=python3.12"

setup: java $(INSTALLED) ## Make .venv and install Anabranch with its locked dependencies

demo: setup ## Find low voltage in a skewed stream of readings, live, in under 90 seconds
	$(BIN)/anabranch demo $(DEMO_ARGS)

test: setup servers kafka ## Run every test but those of the lab and the soak runs
ifdef TEST_ARGS
	$(BIN)/python -m pytest $(TEST_ARGS)
else
	$(BIN)/python -m pytest -q $(QUICK_DISTRIBUTION) $(QUICK_TESTS)
	$(BIN)/python -m pytest $(SPARK_DISTRIBUTION) $(SPARK_TESTS)
endif

test-lab: setup servers kafka ## Run the tests that kill real processes, start clusters and small benches
	$(BIN)/python -m pytest $(SPARK_DISTRIBUTION) tests/lab $(TEST_ARGS)

check: $(INSTALLED) ## Check format, lint, types, architecture and unit tests (needs no Java, no servers)
	@$(MAKE) --no-print-directory -j 2 lint look

# A look at everything while one works: few examples, and nothing at length.
look: $(INSTALLED)
	$(BIN)/python -m pytest -q -n $(CORES) $(DISTRIBUTION) --hypothesis-profile check -m "not soak and not thorough" \
		tests/test_architecture.py tests/unit

lint: $(INSTALLED) ## Check format, lint and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: setup ## Compare the keyed window with native Spark and Flink
	$(BIN)/anabranch bench keyed-window $(BENCH_ARGS)

soak: setup servers kafka ## Run the long randomised tests, for an hour (ANABRANCH_SOAK_SCALE=8: a night)
	$(BIN)/python -m pytest -m soak --timeout=0 -n 2 --dist worksteal --durations=20 tests/soak $(SOAK_ARGS)
	$(BIN)/python -m pytest -m hypothesis --hypothesis-profile soak --timeout=0 -n 2 --dist worksteal tests/unit

docs: $(INSTALLED) ## Build the documents and the reference as a site, in site/; links that lead nowhere are errors
	$(BIN)/python scripts/build_docs.py site
	@echo "open site/index.html"

format: $(INSTALLED) ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: $(INSTALLED) ## Write requirements.lock anew (LOCK_ARGS=--upgrade for newer versions)
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --python-version 3.11 --extra dev \
		--generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --output-file requirements.lock $(LOCK_ARGS)
	@if grep -n '://' requirements.lock; then echo "requirements.lock must name no host" >&2; exit 1; fi

clean: ## Remove .venv, caches and what the demo and the benchmarks wrote
	rm -rf $(VENV) build dist site demo-output bench-output spark-warehouse metastore_db derby.log artifacts
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src benchmarks tests -type d -name __pycache__ -prune -exec rm -rf {} +

# Spark binds to loopback: a host name that resolves to nothing, or to another network, must not stop a local run.
# Workers use this Python: one from outside the virtual environment lacks PyArrow.
demo test test-lab bench soak servers: export SPARK_LOCAL_IP ?= 127.0.0.1
demo test test-lab bench soak servers: export PYSPARK_PYTHON = $(CURDIR)/$(BIN)/python
# Tests start hundreds of Python processes, workers of Spark among them: without bytecode that is kept, each compiles every
# module that it imports anew.
unexport PYTHONDONTWRITEBYTECODE
# Frames of tests are small, and threads that wait for each other cost more than they help. Tasks on Spark have one, too;
# soak runs have as many as there are.
test test-lab look: export POLARS_MAX_THREADS ?= 1
test test-lab soak: export ANABRANCH_CLASS_ARCHIVE = $(CURDIR)/$(CLASS_ARCHIVE)
test test-lab soak: export ANABRANCH_KAFKA_CLASS_ARCHIVE = $(CURDIR)/$(KAFKA_CLASS_ARCHIVE)

java:
	@scripts/ensure-java

servers: $(COMPILED) $(CLASS_ARCHIVE)
	@scripts/ensure-servers

kafka: java $(INSTALLED)
	@scripts/ensure-kafka
	@$(MAKE) --no-print-directory $(KAFKA_CLASS_ARCHIVE)

# An environment that doesn't start (moved folder, removed Python) is made anew.
$(INSTALLED): pyproject.toml requirements.lock
	@scripts/ensure-python "$(PYTHON)"
	@$(BIN)/python -c 'import pip' 2>/dev/null || "$(PYTHON)" -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Tests start dozens of JVMs: those that find their classes in an archive start with a third less work.
$(CLASS_ARCHIVE): $(INSTALLED) | java
	-@PYTHONPATH=.:tests $(BIN)/python tests/archive_classes.py spark $@ 2>/dev/null

# So do brokers, of whom tests start two dozen.
$(KAFKA_CLASS_ARCHIVE): $(INSTALLED) benchmarks/servers/kafka_jars/pom.xml
	-@PYTHONPATH=.:tests $(BIN)/python tests/archive_classes.py kafka $@ 2>/dev/null

# Tests run in several processes, and each of them would compile the same loops and rewrite the same asserts at once:
# one does it before, and the others find what it left.
$(COMPILED): $(INSTALLED) $(wildcard src/anabranch/compiled/*.py)
	@echo "Compiling loops and tests"
	-@$(BIN)/python -m pytest -q --hypothesis-profile check -k "test_twins or test_partners" $(QUICK_TESTS) $(SPARK_TESTS) \
		>/dev/null
	@touch $@
