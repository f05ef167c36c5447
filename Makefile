# Everything sets itself up: `make demo` and `make test` work in a fresh clone with Python ≥ 3.11 and a C compiler.
PYTHON ?= python3
BIN := .venv/bin
BUILT_FROM := pyproject.toml setup.py src/faultlines/core/kernels.pyx
# What an earlier build left would be imported before what is built now, if it was made for one version of Python.
COMPILED := src/faultlines/core/kernels.*.so src/faultlines/core/kernels.*.pyd

# What changes most and takes least: no Spark, browser, wheel, site, command line or studies.
FAST := tests/core tests/estimates tests/results tests/test_architecture.py tests/test_errors.py tests/test_golden.py tests/test_json.py

.PHONY: demo test check fast lint types docs unit stats stats-quick stats-all figures bench paper field pictures wheel coverage lowest clean

demo: .venv/ready
	$(BIN)/faultlines demo

# The tests look at the site that was just built, so that it is built once; ruff and mypy run beside the site.
test: .venv/ready-dev
	$(MAKE) --jobs 2 lint types docs
	FAULTLINES_SITE=build/site $(MAKE) unit

# The inner loop: lint, types and the fast tests beside each other, in under 90 seconds on two cores.
check: .venv/ready-dev
	$(MAKE) --jobs 2 lint types fast

fast: .venv/ready-dev
	$(BIN)/pytest $(FAST)

lint: .venv/ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready-dev
	$(BIN)/mypy

# The documentation site, from docs/ and the code, into build/site: any warning is an error.
docs: .venv/ready-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# On all cores, a file at a time, so that Spark starts once; what takes long (tests/conftest.py) starts first.
unit: .venv/ready-dev
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder

# The same, with the share of lines that tests reach; fails below the floor in pyproject.toml.
coverage: .venv/ready-dev
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder --cov --cov-report=term

# Tests of engines, metrics, the command line and all examples of docstrings with the oldest releases that pyproject.toml
# allows of what users install; Typer of then and Click of now know of each other's deprecations.
lowest: .venv-lowest/ready
	FAULTLINES_LOWEST=1 .venv-lowest/bin/pytest tests/engines tests/rows/test_engines.py tests/rows/test_measure.py tests/estimates/test_estimates.py \
		tests/metrics/test_table.py tests/metrics/test_readout.py tests/cli tests/analyses/test_cluster.py tests/test_docstrings.py \
		-k 'not spark and not ibis' -W ignore::DeprecationWarning

# Monte Carlo studies behind every statistical statement, for at most an hour on two cores. Figures are written to
# docs/figures/*.json as they come, and to the pages at the end; what has passed since the code was changed is not run
# again, so that another `make stats` continues where this one stopped. BUDGET is the number of seconds after which no
# study starts; FAULTLINES_DATA names the folder of public data, without which some are skipped.
BUDGET ?= 3300
STUDIES = OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 $(BIN)/pytest -n auto --dist load --maxschedchunk 1 -m statistical -v
stats: .venv/ready-dev
	FAULTLINES_ABUSE=all $(BIN)/pytest -n auto tests/test_abuse.py
	FAULTLINES_CONTINUE=1 FAULTLINES_BUDGET=$(BUDGET) $(STUDIES); status=$$?; \
		$(BIN)/python -m docs.figures --write && exit $$status

# The same in ten minutes, with fewer runs and so wider bounds: what was run longest ago first, without the studies that
# are known to take a minute even so. Its figures go to build/figures: pages show those of full runs.
stats-quick: .venv/ready-dev
	FAULTLINES_SHARE=0.15 FAULTLINES_BUDGET=540 FAULTLINES_LONGEST=50 $(STUDIES)

# Pages from the figures that are kept.
figures: .venv/ready-dev
	$(BIN)/python -m docs.figures --write

# All of them from the start, however long it takes.
stats-all: .venv/ready-dev
	$(STUDIES); status=$$?; $(BIN)/python -m docs.figures --write && exit $$status

# Ratios to floors and peers, all in one run, to docs/figures/bench.json.
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

# An sdist, and built from it a wheel for every Python from 3.11 on, into dist/.
wheel: .venv/ready-dev
	rm -rf dist
	$(BIN)/python -m build

clean:
	rm -rf .venv .venv-lowest .venv-paper build dist *.egg-info src/*.egg-info src/faultlines/core/kernels.c $(COMPILED)

.venv/pip: Makefile
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "faultlines needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	touch $@

.venv/ready: .venv/pip $(BUILT_FROM)
	rm -f $(COMPILED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[report]'
	touch $@

.venv/ready-dev: .venv/pip $(BUILT_FROM)
	rm -f $(COMPILED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ .venv/ready

.venv-lowest/ready: $(BUILT_FROM)
	$(PYTHON) -m venv .venv-lowest
	rm -f $(COMPILED)
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check uv
	.venv-lowest/bin/uv pip install --quiet --python .venv-lowest/bin/python --resolution lowest-direct \
		--editable '.[frames,report]' 'pytest>=8' 'hypothesis>=6.100'
	touch $@

# Causal trees and forests bring a heavy company of packages, so they live apart.
.venv-paper/ready: $(BUILT_FROM)
	$(PYTHON) -m venv .venv-paper
	.venv-paper/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[paper,paper-data,paper-trees]'
	touch $@
