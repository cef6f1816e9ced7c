# The habits of everyone who works on the course; CI runs the same commands through `./w2w test`.
# UNIT chooses one unit for preview: make preview UNIT=04
PYTHON := .venv/bin/python
W2W := .venv/bin/w2w
UNIT ?= 00

.PHONY: fmt lint types test notebooks check preview

fmt:
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

lint:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	.venv/bin/lint-imports

types:
	$(PYTHON) -m mypy

test:
	$(PYTHON) -m pytest -n 2 tests

notebooks:
	$(W2W) build

check:
	$(W2W) test

preview: notebooks
	$(PYTHON) -m jupyterlab --LabApp.default_url=/lab/tree/notebooks/$(notdir $(firstword $(wildcard notebooks/$(UNIT)_*.ipynb)))
