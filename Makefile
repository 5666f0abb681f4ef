# Targets for people and CI; `make` alone lists them.
PYTHON ?= $(firstword $(foreach name,python3 python3.14 python3.13 python3.12 python3.11,$(shell \
  $(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
CODE := $(wildcard holdfast tests tools bench examples)
ARGS ?=
# Tests start many processes, which should not compile the sources again each time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest

# Runs the tests of each set of marks. ARGS may select none of one set (status 5), but not of all.
define run_marks
found=no; for marks in $(1); do \
  echo "pytest -m $$marks $(ARGS)"; $(PYTEST) -m $$marks $(ARGS) && found=yes || [ $$? -eq 5 ] || exit 1; \
done; [ $$found = yes ] || { echo "no test matches $(ARGS)" >&2; exit 5; }
endef

.PHONY: help setup up test check fix bench chaos mutants audit sbom pins screenshots dist docs bench-peers

help: ## list what there is
	@sed -n 's/^\([a-z-]*\):.*## /  make \1	/p' Makefile | expand -t 20

setup: .venv/.setup ## create .venv with pinned dependencies and .venv/bin/holdfast

up: .venv/.core ## install the core and start Holdfast on SQLite
	@exec $(BIN)/holdfast up $(ARGS)

test: check .venv/.docs ## set-up, all checks and the whole suite
	$(PYTEST) -n 4 --dist worksteal $(ARGS)

check: .venv/.dev ## format, lint, types, import rules, sizes, queries, references in docs
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy --num-workers auto $(CODE)
	$(BIN)/lint-imports
	$(BIN)/python -m tools.check

fix: .venv/.dev ## mend what can be mended
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)
	$(BIN)/python -m tools.manpage > docs/man/holdfast.1

dist: .venv/.dev ## the wheel and the source archive, in dist/
	$(BIN)/python -c 'from setuptools import build_meta as b; b.build_sdist("dist"); b.build_wheel("dist")'

docs: .venv/.docs ## the site of the documentation, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: .venv/.dev ## the benchmark: a table, JSON and a chart
	$(BIN)/python -m bench $(ARGS)

bench-peers: .venv/.dev .venv-peers/.done ## Holdfast beside other queues, on the same server in the same run
	$(BIN)/python -m bench.peers $(ARGS)

chaos: .venv/.dev ## the long fault runs, and tests on further engines and cases
	@$(call run_marks,"chaos" $(if $(filter -m,$(ARGS)),,"further -n 4"))

mutants: .venv/.dev ## one-line faults, each of which a test must notice
	$(BIN)/python tools/mutants $(ARGS)

audit: .venv/.dev ## hashes of all pins, what they must meet, and known vulnerabilities
	$(BIN)/python -m tools.audit $(ARGS)

sbom: .venv/.dev ## a bill of materials of the lock, in sbom.json
	$(BIN)/python -m tools.sbom $(ARGS)

screenshots: .venv/.dev ## pictures of all pages in docs/images
	$(BIN)/python -m tools.screenshots $(ARGS)

pins: ## pin the newest dependencies (needs uv)
	for set in requirements requirements-core requirements-dev requirements-docs requirements-peers requirements-synapse; do uv pip compile --upgrade --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --no-header --quiet $$set.in -o $$set.txt \
	  $$(test $$set = requirements-core && echo -c requirements.txt) || exit 1; done

.venv/.core: requirements-core.txt pyproject.toml
	@test -n "$(PYTHON)" || { echo "Holdfast needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv || { rm -rf .venv; \
	  echo "$(PYTHON) cannot create a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(PIP) install --no-deps --require-hashes -r requirements-core.txt
	@$(PIP) uninstall --yes holdfast 2>/dev/null || true # the distribution's name before 0.5
	$(PIP) install --no-deps --no-build-isolation --config-settings editable_mode=compat --editable .
	@touch $@

.venv/.setup: requirements.txt .venv/.core
	$(PIP) install --no-deps --require-hashes -r requirements.txt
	@touch $@

.venv/.dev: requirements-dev.txt .venv/.setup
	$(PIP) install --no-deps --require-hashes -r requirements-dev.txt
	@touch $@

.venv/.docs: requirements-docs.txt .venv/.dev
	$(PIP) install --no-deps --require-hashes -r requirements-docs.txt
	@touch $@

.venv-peers/.done: requirements-peers.txt bench/peers/package.json
	@command -v npm >/dev/null || { echo "graphile-worker needs Node.js and npm" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv-peers
	.venv-peers/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --require-hashes -r requirements-peers.txt
	cp bench/peers/package.json bench/peers/package-lock.json .venv-peers/
	npm --prefix .venv-peers ci --silent --no-audit --no-fund
	@touch $@
