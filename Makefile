# Everything sets itself up: `make demo` and `make test` work in a fresh clone with Python ≥ 3.11 and a C compiler.
PYTHON ?= python3
BIN := .venv/bin
BUILT_FROM := pyproject.toml src/faultlines/comparison/kernels.pyx

.PHONY: demo test lint types unit stats bench paper field pictures clean

demo: .venv/ready
	$(BIN)/faultlines demo

test: lint types unit

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready-dev
	$(BIN)/mypy

# On all cores, a file at a time, so that Spark starts once; in order, so that it starts first.
unit: .venv/ready-dev
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# Monte Carlo studies behind every statistical claim: some minutes.
stats: .venv/ready-dev
	$(BIN)/pytest -m statistical -v

# Ratios to floors and peers, all in one run.
bench: .venv/ready-dev
	$(BIN)/python -m benchmarks

# The paper's studies again, beside its rivals: figures, numbers and tables of docs/paper.md. Some twenty minutes on two free cores.
paper: .venv-paper/ready
	.venv-paper/bin/python -m experiments

# Studies on public data, which are not ours to pass on: docs/field.md says how to get them, FAULTLINES_DATA names the folder
# that has them. Twenty minutes; `python -m experiments field --quick` takes one.
field: .venv-paper/ready
	.venv-paper/bin/python -m experiments field

# The pictures of README and docs.
pictures: .venv/ready-dev
	$(BIN)/python docs/pictures.py

clean:
	rm -rf .venv .venv-paper build *.egg-info src/*.egg-info src/faultlines/comparison/kernels.c src/faultlines/comparison/*.so

.venv/pip: Makefile
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "faultlines needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/ready: .venv/pip $(BUILT_FROM)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report]'
	touch $@

.venv/ready-dev: .venv/pip $(BUILT_FROM)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ .venv/ready

# Causal trees and forests bring a heavy company of packages, so they live apart.
.venv-paper/ready: $(BUILT_FROM)
	$(PYTHON) -m venv .venv-paper
	.venv-paper/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[paper,paper-data,paper-trees]'
	touch $@
