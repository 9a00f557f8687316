# Needs Python 3.11+ and make, nothing else: every target sets up .venv by itself.
#
#   make demo      render the demo clips, run the embedded model on them, print where the results are
#   make test      the whole test suite
#   make check     what CI runs: format, lint, types, import contracts, tests
#   make fmt       rewrite files the way `make check` wants them
#
# A machine without a GPU can spare itself the CUDA wheels:
#   make demo TORCH_FLAGS="--index-url https://download.pytorch.org/whl/cpu"

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The first interpreter on the path that is new enough.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH_FLAGS ?=
PYTEST_FLAGS ?=
BENCH_FLAGS ?=

# One thread per process: the models are small, and tests must not depend on the number of cores.
export OMP_NUM_THREADS ?= 1

.PHONY: help setup demo test check fmt lint types imports docs-app docs-cli docs-images train-embedded clean

help:  ## print this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

setup: $(STAMP)  ## create .venv and install the package with its development tools

# torch goes first and alone, with the pin: a later requirement then finds it and fetches no other build.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "make: expected Python 3.11 or newer on the path, found none. Install it, or set PYTHON=/path/to/python3." >&2; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH_FLAGS) -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -c "import importlib.util as u, sys; sys.exit('setup: expected no torchvision, found one. A torchvision that does not fit the torch beside it breaks diffusers. Run: $(BIN)/pip uninstall torchvision' if u.find_spec('torchvision') else 0)"
	@touch $@

demo: $(STAMP)  ## run the main job on the embedded model
	env -u OMP_NUM_THREADS $(BIN)/cosmos-transfer demo

test: $(STAMP)  ## run the whole test suite, slow tests too
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: $(STAMP)  ## formatting and lint, without changing a file
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)  ## static types
	$(BIN)/mypy

imports: $(STAMP)  ## import contracts: which folder may use which
	$(BIN)/lint-imports

# Tests last: their summary (how many ran, which were skipped and why) closes the output.
check: $(STAMP)  ## everything CI runs
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -m "not slow" $(PYTEST_FLAGS)

fmt: $(STAMP)  ## rewrite files: format, sort imports, fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

fuzz: $(STAMP)  ## feed damaged files to every reader for ten minutes; FUZZ_FLAGS="--seconds 3600"
	$(BIN)/python -m tests.fuzz.run $(FUZZ_FLAGS)

bench-embedded: $(STAMP)  ## measure the embedded model on held-out clips; BENCH_FLAGS="--clips 4"
	$(BIN)/python -m benchmarks.embedded --workers 2 --threads 2 $(BENCH_FLAGS)

bench-embedded-fast: $(STAMP)  ## what embedded-fast keeps of embedded; after bench-embedded, on as many clips
	$(BIN)/python -m benchmarks.embedded --workers 2 --threads 2 --checkpoint embedded-fast \
		--only table,classifier,timing $(BENCH_FLAGS)

bench-apps: $(STAMP)  ## measure the four applications of ngpc; BENCH_FLAGS="--only sdf"
	$(BIN)/python -m benchmarks.apps $(BENCH_FLAGS)

bench-ngpc: $(STAMP)  ## ngpc's compiled kernels beside eager PyTorch; BENCH_FLAGS="--ways eager"
	$(BIN)/python -m benchmarks.ngpc_kernels $(BENCH_FLAGS)

docs-cli: $(STAMP)  ## write the help texts to docs/cli/
	$(BIN)/python scripts/write_cli_docs.py

docs-images: $(STAMP)  ## run the demo, make its sheet README's picture, and draw looks of held-out scenes
	rm -rf outputs/docs-images
	$(BIN)/cosmos-transfer demo --output outputs/docs-images
	mkdir -p docs/images
	cp outputs/docs-images/sheet.png docs/images/demo_sheet.png
	$(BIN)/python scripts/render_looks_sheet.py docs/images/looks_sheet.png

# The scene of docs/ngpc.md, from nothing to three looks of it.
docs-scene: $(STAMP)  ## train a field on a procedural scene, restyle a new path, make its sheet docs' picture
	rm -rf outputs/table outputs/table_field outputs/table_path outputs/table_looks
	$(BIN)/ngpc make posed outputs/table
	$(BIN)/ngpc fit nerf outputs/table --output outputs/table_field
	$(BIN)/ngpc render outputs/table_field/field.safetensors --controls outputs/table_path \
		--frames 9 --sweep 50 --height 64 --width 96
	$(BIN)/cosmos-transfer generate scene=outputs/table_path \
		prompts_file=configs/ngpc/scene/looks.txt output.dir=outputs/table_looks
	mkdir -p docs/images
	$(BIN)/cosmos-transfer show outputs/table_looks/*.json --output docs/images/scene_to_world.png --overwrite

docs-app: $(STAMP)  ## drive the studio in a browser and take docs/app.md's pictures; needs chromium
	$(BIN)/python -m scripts.make_app_pictures

# How long to train; a run that was stopped goes on where it was.
MINUTES ?= 120
TEXT_MINUTES ?= 15
DECODER_MINUTES ?= 30
train-embedded: $(STAMP)  ## render clips, train the embedded checkpoint, export it to runs/embedded
	$(BIN)/cosmos-transfer train data
	env -u OMP_NUM_THREADS $(BIN)/cosmos-transfer train text --minutes $(TEXT_MINUTES)
	env -u OMP_NUM_THREADS $(BIN)/cosmos-transfer train joint --minutes $(MINUTES)
	env -u OMP_NUM_THREADS $(BIN)/cosmos-transfer train autoencoder --minutes $(DECODER_MINUTES)
	$(BIN)/cosmos-transfer train export --output runs/embedded --overwrite

clean:  ## remove caches and build leftovers; keeps .venv and outputs
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -path ./$(VENV) -prune -o -name __pycache__ -type d -print | xargs -r rm -rf
