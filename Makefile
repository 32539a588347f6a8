# make demo   set up and run the main job: replay a workload, keep every decision, explain some
# make test   set up, lint and test
# make engines  install SGLang and vLLM, each in an environment of its own under .engines, and test against them
# make faults  faults done on purpose, many times (half an hour or more); rewrites the table in docs/reliability.md
# make fuzz    every parser on bad input: FUZZ_RUNS executions of a quick one, seed FUZZ_SEED (printed); a table of what was found
# make lint   ruff, mypy, import contracts
# make bench  the admission benchmark (takes a minute or two; numbers are for reading, never asserted)
# make side-by-side  our costs against SGLang's and vLLM's own, OpenTelemetry's and SQLite's, all in one run
# make docs   rewrite the generated reference pages
# make site   build the documentation into docs/build, a site that can be read from a disk
# make picture  rewrite the picture of the screen in docs/images
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test engines faults fuzz lint bench side-by-side docs site picture clean
.DELETE_ON_ERROR:

$(VENV)/.ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "glassgate needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: $(VENV)/.ready
	$(BIN)/glassgate demo

test: $(VENV)/.ready lint
	$(BIN)/python -m pytest

# ENGINES=FOLDER puts the environments elsewhere; ENGINE_PYTHON names a Python 3.11.
engines:
	tests/engines/run.sh

# ROUNDS of each kill; SEED of every random choice, a new one without it.
ROUNDS ?= 200
faults: $(VENV)/.ready
	nice -n 10 $(BIN)/python -m tests.faults.run --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

# FUZZ_RUNS (20000) and FUZZ_SEED (drawn) are read from the environment or given here.
fuzz: export FUZZ_RUNS := $(FUZZ_RUNS)
fuzz: export FUZZ_SEED := $(FUZZ_SEED)
fuzz: $(VENV)/.ready
	nice -n 10 $(BIN)/python tests/fuzz/long.py

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(VENV)/.ready
	$(BIN)/glassgate bench

# ENGINES=FOLDER as with `engines`; what is not installed there is left out.
side-by-side: $(VENV)/.ready
	$(BIN)/python tests/engines/side_by_side.py --engines $(or $(ENGINES),.engines)

# The screen on the built-in workload, as the README shows it.
picture: $(VENV)/.ready
	home=$$(mktemp -d) && export GLASSGATE_HOME=$$home && \
	  $(BIN)/glassgate demo --no-screen --sessions 400 >$$home/summary && \
	  $(BIN)/glassgate ui --at -60 --size 140x45 --screenshot docs/images/screen.svg; code=$$?; rm -rf $$home; exit $$code

docs: $(VENV)/.ready
	$(BIN)/python -m ui.reference
	$(BIN)/python -m store.datasette

site: $(VENV)/.ready
	$(BIN)/zensical build --strict -f docs/zensical.toml

clean:
	rm -rf $(VENV) .engines .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis docs/build docs/.cache
