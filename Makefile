# Daily commands; `make help` lists them.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGES := platform_defs assets sensors resources
# Without bytecode every new process compiles Dagster again, which triples its start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help up test lint services services-stop lock clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(VENV)/runtime: requirements.lock pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q $(PACKAGES)
	touch $@

$(VENV)/dev: $(VENV)/runtime requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

up: $(VENV)/runtime ## start the platform with demo data; ARGS="--api-port 8001" passes options on
	$(BIN)/platform up $(ARGS)

test: $(VENV)/dev ## all tests that this machine can run; ARGS="-k name" passes options on
	$(BIN)/python -m pytest -n 2 --no-loadscope-reorder $(ARGS)

lint: $(VENV)/dev ## format and fix what ruff can fix
	$(BIN)/ruff format . && $(BIN)/ruff check --fix .

services: ## a real MySQL, Neo4j and MariaDB on loopback, for the tests
	@tests/servers/services start

services-stop: ## stop them
	@tests/servers/services stop

LOCK := uv pip compile --universal --no-strip-extras --generate-hashes --no-emit-index-url --no-header --python-version 3.11 -q pyproject.toml
lock: ## write the lock files anew from pyproject.toml (needs uv)
	$(LOCK) --extra build -o requirements.lock
	$(LOCK) --extra build --extra dev -c requirements.lock -o requirements-dev.lock

clean: ## remove the venv and the embedded platform
	rm -rf $(VENV) .platform
