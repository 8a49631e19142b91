# make demo | test | bench | install | lint     each sets up what it needs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test bench install lint clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	@$(BIN)/llama-load demo

test: $(VENV)/.dev
	$(BIN)/pytest

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.clients

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

install: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "llama-load needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=python3.12 demo"; exit 1; }
	@echo "Creating $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(VENV)/bin/python
	@echo "Installing llama-load with its extra 'demo' …"
	@$(PIP) --no-compile -e '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing llama-load with its extra 'dev' …"
	@$(PIP) -e '.[dev]'
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) runs
