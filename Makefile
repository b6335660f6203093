# The commands of this repository; `make help` lists them.

PYTHON ?= $(shell for p in python3.11 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv/bin
NPM = PATH="$(CURDIR)/$(VENV):$$PATH" npm --prefix web --silent
STATE ?= .rekindle
PORT ?= 8080
SPOT_CAPACITY ?=
MODEL ?=
ENGINE ?=
TORCH ?=
KEEP ?=
REV ?=
T ?= tests
JOBS ?= 4
# The tests start our programs hundreds of times: they are compiled once.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help
.PHONY: help setup demo up test long check fmt docs exactness gpu az images audit mutants chaos

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## install everything into .venv and node_modules (TORCH="wheel or pip arguments")
	$(if $(PYTHON),,$(error Python 3.11 or newer is needed; say where it is: make PYTHON=/path/to/python3.11))
	@$(PYTHON) -m rekindle.local.setup --torch '$(TORCH)'

demo: setup ## train a model on the local stack, evict it, watch it come back (MODEL=name ENGINE=name); the last line is JSON
	@$(VENV)/python -m rekindle.local.demo $(if $(MODEL),--model '$(MODEL)') $(if $(ENGINE),--engine '$(ENGINE)')

up: setup ## run the local stack in the foreground (STATE=dir PORT=n MODEL=name ENGINE=name SPOT_CAPACITY=file)
	@$(VENV)/python -m rekindle.local.up --state '$(STATE)' --port $(PORT) $(if $(MODEL),--model '$(MODEL)') $(if $(ENGINE),--engine '$(ENGINE)') $(if $(SPOT_CAPACITY),--spot-capacity '$(SPOT_CAPACITY)')

test: check ## lint, types, import contracts and every test that needs no cloud and no GPU (T=path narrows)
	@$(NPM) test
	@$(VENV)/python -m pytest $(T) -q -n $(JOBS) --dist loadfile --no-loadscope-reorder -m 'not azure and not gpu and not long'

long: setup ## the tests that need minutes each: partitions, foreign programs, pipelines, more resumes
	@$(VENV)/python -m pytest tests -q -m long

check: setup ## lint, types and import contracts alone
	@$(VENV)/ruff format --check --quiet .
	@$(VENV)/ruff check --quiet .
	@$(VENV)/mypy --no-error-summary
	@$(VENV)/lint-imports --no-logo
	@$(NPM) run check

docs: setup ## regenerate pages, openapi.json and dashboards, then build the site in build/site; a dead link fails
	@$(VENV)/python -m tests.repository.pages
	@$(VENV)/python -m tests.repository.dashboards
	@$(VENV)/python -m tests.recorded.agreement
	@$(VENV)/python -m tests.repository.openapi
	@$(VENV)/zensical build --clean --strict

fmt: setup ## format the code and mend what ruff can mend
	@$(VENV)/ruff format --quiet .
	@$(VENV)/ruff check --quiet --fix .
	@$(NPM) run format

exactness: setup ## the whole exact-resume matrices of the trainer; KEEP=file: what holds is not run again
	@$(VENV)/python -m tests.system.exactness $(if $(KEEP),--keep '$(KEEP)')

gpu: setup ## the tests that need a GPU, on this machine's (REKINDLE_ACCELERATOR=cuda is set for them)
	@REKINDLE_ACCELERATOR=cuda $(VENV)/python -m pytest tests/system/training/test_gpu.py -q

mutants: setup ## plant subtle faults in copies; each must be caught by its named test (MUTANTS="--only TEXT --jobs N")
	@$(VENV)/python -m tests.mutants $(MUTANTS)

chaos: setup ## strike a replica at every point of whole lives, in every way (CHAOS="options" KEEP=file; hours)
	@$(VENV)/python -m tests.chaos $(if $(KEEP),--keep '$(KEEP)') $(CHAOS)

az: setup ## the real az and the JavaScript SDK on the emulator, with transcripts in docs/ (installs 810 MB)
	@test -x .venv-az/bin/az || { $(PYTHON) -m venv .venv-az && .venv-az/bin/pip install -q 'azure-cli==2.91.*'; }
	@$(VENV)/python -m tests.system.clients.az
	@$(VENV)/python -m tests.system.clients.javascript

images: setup ## build and try the container images (IMAGES="options"; docs/images.md)
	@$(VENV)/python -m docker.build $(IMAGES)

audit: setup ## known vulnerabilities in what the images install (AUDIT="--ignore ID"; needs a network)
	@$(VENV)/python -m docker.audit $(AUDIT)
