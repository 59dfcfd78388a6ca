# Two commands do everything: `make demo` and `make test`. Each sets up .venv by itself, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/afor/_kernel*.[ch])

.PHONY: help demo test test-slow check bench docs report-picture clean

help:
	@echo "make demo       the main job on embedded data: sets up, runs, shows the result"
	@echo "make test       the test suite"
	@echo "make check      lint, format and types"
	@echo "make bench      speed against the alternatives, as ratios"
	@echo "make docs       the documentation as HTML"
	@echo "make test-slow  the long versions of the tests"

$(BIN)/python:
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# One stamp per set of extras; a set is installed again when what it is made from changes.
$(VENV)/.ready-%: $(SOURCES) | $(BIN)/python
	@echo "Installing afor[$*] into $(VENV) (once; a minute or two) ..."
	@$(PIP) install -qq --constraint constraints.txt --editable ".[$*]"
	@touch $@

demo: $(VENV)/.ready-bench
	@$(BIN)/afor demo

test: $(VENV)/.ready-dev
	@$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(VENV)/.ready-dev
	@$(BIN)/python -m pytest -n auto -m slow --timeout 3600

check: $(VENV)/.ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

bench: $(VENV)/.ready-dev
	@$(BIN)/python benchmarks/eegnet.py
	@$(BIN)/python benchmarks/backbones.py
	@$(BIN)/python benchmarks/training.py
	@$(BIN)/python benchmarks/speed.py --check

docs: $(VENV)/.ready-docs
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

report-picture: $(VENV)/.ready-dev
	@$(BIN)/afor demo
	@$(BIN)/python docs/figures/report_page.py results/demo.db

clean:
	@rm -rf $(VENV) build dist docs/_build src/*.egg-info src/afor/*.so
