# `make` checks everything; `make demo` shows what dgent does. Needs python3 (3.11 or newer), pip and make.

PYTHON ?= python3
WORKERS ?= 3

VENV := .venv
BIN := $(VENV)/bin

# Tests start hundreds of programs. Where bytecode is switched off, each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/bytecode

PIP_FLAGS := -qq --disable-pip-version-check --no-input

.DEFAULT_GOAL := check
.PHONY: check demo test soak lint types layers docs conformance fuzz adk bench bench-adk bare clean
.SILENT:

check: lint types layers test docs adk bare  ## all of it

# The stamps live inside the venv, so they can never outlive it.
$(VENV)/.installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || { echo "setting up $(VENV)"; $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[test]' -c constraints.txt
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[bench]' -c constraints.txt
	touch $@

# ADK caps what others need newer, so it has a venv of its own: its pins, and those of the others that it leaves alone.
ADK := $(VENV)/adk
$(ADK)/.installed: pyproject.toml constraints.txt constraints-adk.txt
	test -x $(ADK)/bin/python || { echo "setting up $(ADK)"; $(PYTHON) -m venv $(ADK); }
	awk -F== 'NR == FNR { own[$$1] } NR == FNR || !($$1 in own)' constraints-adk.txt constraints.txt > $(ADK)/constraints.txt
	$(ADK)/bin/python -m pip install $(PIP_FLAGS) -e '.[test-adk]' -c $(ADK)/constraints.txt
	touch $@

demo: $(VENV)/.installed  ## run the example
	$(BIN)/dgent demo

# Not -q: that would hide the seed of the random order.
test: $(VENV)/.installed  ## every test, in parallel and in random order
	$(BIN)/python -m pytest --forks $(WORKERS) $(ARGS)

# Long looks, and the suite as it must also pass: without asserts, strict, watched by asyncio, private, in ASCII.
# By the environment, not by options: the workers, and the programs that tests start, do not get those.
SOAK ?= 10
soak: $(VENV)/.installed  ## every test for longer, then once in each unusual setting; takes hours
	DGENT_SOAK=$(SOAK) $(BIN)/python -m pytest --forks $(WORKERS) -o timeout=7200 $(ARGS)
	PYTHONOPTIMIZE=1 $(BIN)/python -m pytest --forks $(WORKERS) -W "ignore:assertions not in test modules" $(ARGS)
	PYTHONWARNINGS=error $(BIN)/python -m pytest --forks $(WORKERS) $(ARGS)
	PYTHONASYNCIODEBUG=1 $(BIN)/python -m pytest --forks $(WORKERS) -o timeout=1200 $(ARGS)
	umask 077; $(BIN)/python -m pytest --forks $(WORKERS) $(ARGS)
	LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 $(BIN)/python -m pytest --forks $(WORKERS) $(ARGS)

lint: $(VENV)/.installed  ## ruff: rules and format
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --quiet --check .

types: $(VENV)/.installed  ## mypy, strict
	$(BIN)/mypy --no-error-summary

layers: $(VENV)/.installed  ## who may import whom
	$(BIN)/lint-imports --no-logo

docs: $(VENV)/.installed  ## every snippet in the docs runs
	$(BIN)/python -m pytest -q --forks $(WORKERS) tests/docs

conformance: $(VENV)/.installed  ## the public suite of MCP and the schema of ACP; brings both with npm
	$(BIN)/python -m tests.mcp.conformance
	$(BIN)/python -m tests.acp.conformance

fuzz: $(VENV)/.installed  ## schemathesis on the server; brings it with pip
	$(BIN)/python -m tests.http.fuzz $(ARGS)

adk: $(ADK)/.installed  ## the tests of Google's ADK, in a venv of their own
	$(ADK)/bin/python -m pytest -q tests/bridges/adk $(ARGS)

bench: $(VENV)/.installed-bench  ## measure against the alternatives
	$(BIN)/python -m bench $(ARGS)

bench-adk: $(ADK)/.installed  ## measure the sessions of Google's ADK
	$(ADK)/bin/python -m bench.adk $(ARGS)

# Built and installed as a stranger would get it, so a file missing from the wheel shows here.
bare:  ## dgent works with no extras installed
	set -e; tmp=$$(mktemp -d); trap 'rm -rf "$$tmp"' EXIT; \
	$(PYTHON) -m venv "$$tmp/venv"; \
	"$$tmp/venv/bin/python" -m pip install $(PIP_FLAGS) . -c constraints.txt; \
	cd "$$tmp"; \
	venv/bin/python -c 'import dgent'; \
	venv/bin/dgent demo >/dev/null; \
	echo "bare: import and demo work with no extras"

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
