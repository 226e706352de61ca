# nodeagent: `make run` starts it on the example manifests, `make test` passes the tests.
# A fresh machine needs only Python 3.11+ (with venv) and make.

PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { echo $$p; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
RUN_DIR ?= .run
MANIFESTS ?= examples/manifests
HEALTHZ_PORT ?= 10248
READ_ONLY_PORT ?= 10255
FUZZ_SECONDS ?= 20

.DEFAULT_GOAL := help
.PHONY: help run test e2e lint format types unit integration fuzz wheel protos bench build clean

help:
	@echo "make run      start the agent on $(MANIFESTS) with the embedded runtime"
	@echo "make test     lint, types, unit and integration tests, and a wheel that installs and runs"
	@echo "make e2e      the same agent on a real containerd and API server (root; installs Debian packages)"
	@echo "make fuzz     random manifests, files and runtime answers for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make bench    measure, and print a table of ratios"
	@echo "make lint | types | unit | integration | wheel    one part of make test"
	@echo "make format | protos | build | clean"

# --- the virtual environment ---------------------------------------------------------------

$(BIN)/python:
	@if [ -z "$(PYTHON)" ]; then echo "make: Python 3.11 or newer is needed and none was found on PATH."; \
		echo "      Install one (Debian, Ubuntu: apt-get install python3 python3-venv) or run: make PYTHON=/path/to/python3.11"; exit 1; fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "make: $(PYTHON) cannot create virtual environments: its venv module is missing."; \
		echo "      Install it (Debian, Ubuntu: apt-get install python3-venv) and run make again."; exit 1; }
	@echo "creating $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.run-ready: pyproject.toml src/nodeagent/_version.py | $(BIN)/python
	@echo "installing nodeagent into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev-ready: pyproject.toml src/nodeagent/_version.py | $(BIN)/python
	@echo "installing nodeagent and its development tools into $(VENV)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev,protos]'
	@touch $@ $(VENV)/.run-ready

# --- the main job --------------------------------------------------------------------------

run: $(VENV)/.run-ready
	@exec $(BIN)/nodeagent run \
		--container-runtime-endpoint=embedded \
		--pod-manifest-path=$(MANIFESTS) \
		--root-dir=$(RUN_DIR)/kubelet --pod-logs-dir=$(RUN_DIR)/logs \
		--healthz-port=$(HEALTHZ_PORT) --read-only-port=$(READ_ONLY_PORT) \
		--file-check-frequency=5s --stop-pods-on-exit --welcome

# --- the tests -----------------------------------------------------------------------------

test: lint types unit integration fuzz wheel

lint: $(VENV)/.dev-ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

format: $(VENV)/.dev-ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.dev-ready
	$(BIN)/mypy

unit: $(VENV)/.dev-ready
	$(BIN)/pytest -q -n auto tests/unit

integration: $(VENV)/.dev-ready
	$(BIN)/pytest -q -n auto tests/integration

fuzz: $(VENV)/.dev-ready
	$(BIN)/python scripts/fuzz.py --seconds $(FUZZ_SECONDS)

wheel: $(VENV)/.dev-ready
	$(BIN)/python scripts/check_wheel.py

e2e: $(VENV)/.dev-ready
	$(BIN)/python scripts/e2e_setup.py
	$(BIN)/pytest -q -n 4 --dist loadfile --no-loadscope-reorder tests/e2e

# --- the rest ------------------------------------------------------------------------------

protos: $(VENV)/.dev-ready
	$(BIN)/python scripts/gen_protos.py

bench: $(VENV)/.dev-ready
	$(BIN)/python bench/run.py

build: $(VENV)/.dev-ready
	$(BIN)/python -m build

clean:
	rm -rf build dist $(RUN_DIR) .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +
	@echo "left: $(VENV) (remove it with: rm -rf $(VENV))"
