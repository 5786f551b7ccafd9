# Daily commands; `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := platform_defs assets sensors resources
# Two more than there are processors on a small machine: end-to-end tests wait as often as they compute.
WORKERS ?= 4
# Without bytecode every new process compiles Dagster again, which triples its start.
unexport PYTHONDONTWRITEBYTECODE

INSTALL := $(BIN)/pip install --disable-pip-version-check --progress-bar off --require-hashes
# one line that counts where stderr is a terminal, every tenth package on stdout elsewhere
PROGRESS := awk -v terminal="$$(test -t 2 && echo 1)" '\
  BEGIN { out = terminal ? "/dev/stderr" : "/dev/stdout" } \
  /^(Collecting|Requirement already)/ { n++; name = $$1 == "Collecting" ? $$2 : $$4; \
    if (terminal) printf "\r  %d packages, now %-50s", n, name > out; else if (n % 10 == 0) print "  " n " packages" > out; fflush(out) } \
  /^Installing collected/ { text = "unpacking " n " packages"; \
    if (terminal) printf "\r  %-65s", text > out; else print "  " text > out; fflush(out) } \
  END { if (terminal) printf "\n" > out }'

.PHONY: help up test lint services services-stop lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST) | sort

# A folder that has no pip, or the pip of another Python, is what a failed attempt left.
$(VENV)/runtime: requirements.lock pyproject.toml
	@$(BIN)/python -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { rm -rf $(VENV); \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "expected Python 3.11 or later, got %d.%d; name another: make $(or $(MAKECMDGOALS),up) PYTHON=python3.11" % sys.version_info[:2])' \
	  && { $(PYTHON) -m venv $(VENV) >&2 || { rm -rf $(VENV); echo "$(PYTHON) cannot create a virtual environment; on Debian: apt install python3-venv" >&2; exit 1; }; }; }
	@echo "installing the packages of requirements.lock, once; this takes a minute or two"
	@set -o pipefail; $(INSTALL) -r requirements.lock | $(PROGRESS)
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

$(VENV)/dev: $(VENV)/runtime requirements-dev.lock
	@set -o pipefail; $(INSTALL) -r requirements-dev.lock | $(PROGRESS)
	@touch $@

up: $(VENV)/runtime ## start the platform, with demo data where it creates an embedded database; ARGS="--api-port 8001" passes options on
	$(BIN)/platform up $(ARGS)

test: $(VENV)/dev ## the tests; the long ones only with PLATFORM_TEST_LONG=1; ARGS="-k name" passes options on
	$(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder $(ARGS)

lint: $(VENV)/dev ## format and fix what ruff can fix
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

services: ## a real MySQL, Neo4j, MariaDB and PostgreSQL on loopback and a real dbt-ol, for the tests
	@tests/servers/services start

services-stop: ## stop them
	@tests/servers/services stop

LOCK := uv pip compile --universal --no-strip-extras --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -q
DBT := tests/lineage/dbt/requirements
lock: ## write the lock files anew from pyproject.toml, and that of the tests' dbt (needs uv)
	$(LOCK) pyproject.toml --extra build -o requirements.lock
	$(LOCK) pyproject.toml --extra build --extra postgres --extra dev -c requirements.lock -o requirements-dev.lock
	$(LOCK) $(DBT).in -o $(DBT).lock

clean: ## remove the venv and the embedded platform
	rm -rf $(VENV) .platform
