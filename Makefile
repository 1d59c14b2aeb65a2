# All tasks on gemel's source. `make help` lists the targets.
# On a fresh machine with Python (venv), g++ and make, `make demo` and `make test` are enough.

PYTHON ?= python3
# make's own default is g++, which a machine with another compiler lacks.
ifeq ($(origin CXX),default)
CXX := c++
endif
# How long each sanitizer run of the engine lasts.
SECONDS ?= 60
# Which part of long tables of cases `make test` runs, such as 2/3; all without it.
CASES ?=
# How often `make edges` repeats its forks and exits.
TIMES ?= 200
# What `make benchmark` runs, and how: make benchmark WHAT=issue OPTIONS=--quick
WHAT ?= mlp issue train cold engine
OPTIONS ?=
NAMES ?= lenet char_lstm transformer_lm multi_device resume
# The tests that `make gpu` runs with all arrays on the GPU.
GPU_TESTS ?= ops gradient_cases gradients second_gradients_of_all three_ways every_layer indexing \
  np_shapes np_linalg random loops control_flow windows attention_values more_layers scans topk boxes \
  norms_and_sequences optimizer
PEERS ?= torch==2.13.0 onnxruntime onnx jax jaxlib openvino pillow

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Everything the wheel is made of: when one of these changes, it is built and installed again.
SOURCES := $(sort $(shell find gemel src -type f \( -name '*.py' -o -name '*.pyi' -o -name '*.h' \
  -o -name '*.cc' -o -name py.typed -o -name CMakeLists.txt \) 2>/dev/null)) CMakeLists.txt pyproject.toml
CXX_FILES := $(shell find src tests/cpp tests/c benchmarks -name '*.h' -o -name '*.cc' -o -name '*.c' 2>/dev/null)
PYTHON_DIRECTORIES := $(wildcard gemel tests benchmarks examples tools)
WHEEL = $(wildcard build/wheel/gemel-*.whl)

# What to say when pip cannot fetch something: the one thing a script cannot check beforehand.
define NO_NETWORK
{ echo "gemel cannot be built here: pip could not fetch what it needs (see above)." >&2; \
  echo "  Connect to the network, or point pip at a mirror: PIP_INDEX_URL=... make $(MAKECMDGOALS)" >&2; \
  exit 1; }
endef

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

# ---------------------------------------------------------------- environment and package

.PHONY: venv build
venv: .venv/.made ## make the virtual environment .venv
build: .venv/.installed ## build the package from source and install it in .venv

.venv/.made:
	@tools/check_machine.sh "$(PYTHON)" "$(CXX)"
	$(PYTHON) -m venv .venv
	@$(PIP) install --quiet --retries 1 --timeout 20 --upgrade pip numpy llvmlite || $(NO_NETWORK)
	@touch $@

# Changes only when a source file is added or removed (make itself sees only changed ones).
build/sources: always
	@mkdir -p build
	@echo "$(SOURCES)" | cmp -s - $@ || echo "$(SOURCES)" > $@

.PHONY: always
always:

# One wheel, built by pip with build isolation, serves every target below.
build/wheel/.stamp: $(SOURCES) build/sources | .venv/.made
	@tools/check_machine.sh "$(PYTHON)" "$(CXX)"
	@rm -rf build/wheel && mkdir -p build/wheel
	CXX="$(CXX)" $(PIP) wheel --quiet --no-deps --wheel-dir build/wheel .
	@touch $@

.venv/.installed: build/wheel/.stamp
	@$(PIP) install --quiet "$(WHEEL)" || $(NO_NETWORK)
	@$(PIP) install --quiet --no-deps --force-reinstall "$(WHEEL)"
	@touch $@

.venv/.demo .venv/.test .venv/.dev .venv/.mpi .venv/.ray .venv/.cuda: .venv/.%: pyproject.toml | .venv/.installed
	@$(PIP) install --quiet "$(WHEEL)[$*]" || $(NO_NETWORK)
	@touch $@

# ---------------------------------------------------------------- what users run

.PHONY: demo experiments trainings test distributed targets gpu
demo: .venv/.installed .venv/.demo ## train a network on real handwriting, imperatively and hybridized
	$(BIN)/python examples/digits.py

experiments: .venv/.installed ## run the chapter's experiments on asynchronous computation, with predictions
	@for name in issue increments devices overlap memory graph; do \
	  echo; echo "== examples/async_$$name.py"; $(BIN)/python examples/async_$$name.py || failed=1; \
	done; exit $${failed:-0}

trainings: .venv/.installed .venv/.test ## train on digits and text, for minutes each (NAMES="lenet resume", OPTIONS=--quick)
	@for name in $(NAMES); do \
	  echo; echo "== examples/$$name.py"; $(BIN)/python examples/$$name.py $(OPTIONS) || failed=1; \
	done; exit $${failed:-0}

test: .venv/.installed .venv/.test ## run the tests against the installed package (CASES=2/4: a quarter of each long table)
	$(BIN)/pytest $(if $(CASES),--cases $(CASES)) $(TESTS)

distributed: .venv/.installed .venv/.test .venv/.mpi .venv/.ray ## install mpi4py, Open MPI and Ray, and run the tests of several workers
	$(BIN)/pytest -m distributed

gpu: .venv/.installed .venv/.test .venv/.cuda ## test gemel on this machine's GPU, with CUDA; without one the tests are skipped
	GEMEL_CUDA=1 $(BIN)/pytest tests/test_gpu.py
	GEMEL_CUDA=1 $(BIN)/pytest --device gpu $(GPU_TESTS:%=tests/test_%.py)

targets: .venv/.installed .venv/.test ## test kernels against their definition in NumPy, as C, and on aarch64 (QEMU) and wasm (Node) if installed
	$(BIN)/pytest -m "targets or not slow" tests/test_targets.py tests/test_meaning.py tests/test_print_c.py

.PHONY: docs
docs: .venv/.installed ## write the reference, one page per function, to build/reference
	$(BIN)/python -I tools/reference.py build/reference

# ---------------------------------------------------------------- checks

.PHONY: lint format edges slow sanitize sanitize-address sanitize-thread tsan asan mutations
lint: .venv/.dev ## check style, types, layers and the format of the C++ files
	$(BIN)/ruff check $(PYTHON_DIRECTORIES)
	$(BIN)/ruff format --check $(PYTHON_DIRECTORIES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror $(CXX_FILES)

format: .venv/.dev ## rewrite the files in the project's format
	$(BIN)/ruff check --fix --exit-zero $(PYTHON_DIRECTORIES)
	$(BIN)/ruff format $(PYTHON_DIRECTORIES)
	$(BIN)/clang-format -i $(CXX_FILES)

edges: .venv/.installed .venv/.test ## test many forks, exits and races, also on a busy machine (TIMES=200)
	TIMES=$(TIMES) $(BIN)/pytest -m slow $(wildcard tests/test_edges_*.py)

slow: .venv/.installed .venv/.test ## test every network of the model zoo, and the book's cells at full size
	$(BIN)/pytest -m slow $(addprefix --ignore=,$(wildcard tests/test_edges_*.py))

sanitize: sanitize-address sanitize-thread ## run the Python tests on a core built with sanitizers (OPTIONS=--short)
sanitize-address sanitize-thread: sanitize-%: .venv/.dev .venv/.test
	CXX="$(CXX)" $(BIN)/python tools/sanitize.py $* $(OPTIONS)

tsan asan: .venv/.dev
tsan: ## run the engine's stress program under ThreadSanitizer (SECONDS=60)
	CXX="$(CXX)" $(BIN)/python tools/sanitize.py thread --stress $(SECONDS)
asan: ## run it under AddressSanitizer and UndefinedBehaviorSanitizer
	CXX="$(CXX)" $(BIN)/python tools/sanitize.py address --stress $(SECONDS)

mutations: .venv/.dev .venv/.test ## check that the engine's tests find known bugs inserted into it (SECONDS=60)
	CXX="$(CXX)" $(BIN)/python tools/mutations.py --seconds $(SECONDS)

# ---------------------------------------------------------------- figures

.PHONY: peers benchmark
peers: .venv-peers/.made ## install the libraries that gemel is compared with, in .venv-peers

.venv-peers/.made: Makefile
	@tools/check_machine.sh "$(PYTHON)" "$(CXX)"
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip --disable-pip-version-check install $(PEERS) || $(NO_NETWORK)
	@touch $@

benchmark: .venv/.installed ## measure gemel and the libraries it is compared with (WHAT="mlp issue", OPTIONS=--quick)
	@for what in $(WHAT); do $(BIN)/python -m benchmarks $$what $(OPTIONS) || exit 1; done

# ---------------------------------------------------------------- for developers

.PHONY: stubs core clean
stubs: .venv/.installed .venv/.dev ## write the type stubs of np, npx and the methods of arrays
	$(BIN)/python -I tools/stubs.py gemel
	$(BIN)/ruff check --fix --quiet gemel
	$(BIN)/ruff format --quiet gemel

core: .venv/.dev ## compile the C++ core into gemel/ for a quick edit-and-run loop
	$(BIN)/cmake -S . -B build/core -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_COMPILER="$(CXX)" \
	  -DCMAKE_MAKE_PROGRAM="$(CURDIR)/$(BIN)/ninja" \
	  -DPython_EXECUTABLE="$(CURDIR)/$(BIN)/python" -DSKBUILD_PROJECT_NAME=gemel \
	  -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
	  -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)" >build/core.log
	$(BIN)/cmake --build build/core
	cp build/core/_core*.so gemel/
	mkdir -p gemel/lib && cp build/core/src/libgemel.so gemel/lib/

clean: ## remove all build products and the environments
	rm -rf build dist .venv .venv-peers .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find gemel tests benchmarks examples \( -name __pycache__ -o -name '_core*.so' \) -prune -exec rm -rf {} +
