# Thin names over dev.py, which needs nothing but Python 3.11 or later.
PYTHON ?= python3
.DEFAULT_GOAL := help
.PHONY: help demo test lint lock

help:  ## this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

demo:  ## a burst of messages through the whole engine, no keys, no services
	@$(PYTHON) dev.py demo

test:  ## the whole check: ruff, mypy, floors, tests
	@$(PYTHON) dev.py test

lint:  ## ruff, mypy, floors
	@$(PYTHON) dev.py lint

lock:  ## resolve the dependencies of pyproject.toml again into requirements.lock
	@$(PYTHON) dev.py lock
