# Each target does its own set-up: it needs Python 3.10 - 3.13 with venv, and a package registry.
PYTHON ?= python3
NEW    := .venv
OLD    := .venv-triton36
PYTEST := -q -p no:cacheprovider
SOURCES := pyproject.toml CMakeLists.txt constraints/ci.txt src/kcontract/kcontract.pth

.DEFAULT_GOAL := help
.PHONY: help demo test test-new test-old slow fuzz lint docs clean

help:  ## this list
	@grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 12

demo: $(NEW)/ready  ## compile example kernels for sm_100 under TRITON_KCONTRACT=1 (no GPU needed)
	@$(NEW)/bin/python examples/demo.py

test: test-new test-old  ## all quick tests, on Triton 3.9.0 and on 3.6.0

test-new: $(NEW)/ready
	$(NEW)/bin/python -m pytest $(PYTEST) -n 2 -m "not slow"

test-old: $(OLD)/ready
	$(OLD)/bin/python -m pytest $(PYTEST) -n 2 -m "not slow" tests/ir tests/passes tests/hook tests/cli tests/lit tests/dynamic/engines tests/dynamic/simulator tests/sweep

slow: $(NEW)/ready $(OLD)/ready  ## the sweeps: minutes to hours
	$(NEW)/bin/python -m pytest $(PYTEST) -m slow
	$(OLD)/bin/python -m pytest $(PYTEST) -m slow tests/ir

fuzz: $(NEW)/ready  ## a million mutated inputs over the readers
	$(NEW)/bin/python tests/fuzz/run.py

lint: $(NEW)/ready  ## ruff and mypy
	$(NEW)/bin/ruff check .
	$(NEW)/bin/ruff format --check .
	$(NEW)/bin/mypy

docs: $(NEW)/ready  ## write the generated pages of docs/ again
	$(NEW)/bin/python docs/generate.py

clean:  ## remove the virtual environments and build output
	rm -rf $(NEW) $(OLD) build

$(NEW)/ready: $(SOURCES)
	$(PYTHON) -m venv $(NEW)
	$(NEW)/bin/python -m pip install -q -U pip
	$(NEW)/bin/python -m pip install -q -c constraints/ci.txt -e '.[dev,dynamic]'
	$(NEW)/bin/python -m pip install -q --no-deps triton==3.9.0  # torch's CUDA builds pin a Triton of their own
	@touch $@

$(OLD)/ready: $(SOURCES)
	$(PYTHON) -m venv $(OLD)
	$(OLD)/bin/python -m pip install -q -U pip
	$(OLD)/bin/python -m pip install -q -c constraints/ci.txt -e '.[dev,dynamic]'
	$(OLD)/bin/python -m pip install -q --no-deps triton==3.6.0  # torch's CUDA builds pin a Triton of their own
	@touch $@
