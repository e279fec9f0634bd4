# Two commands for newcomers: `make run` and `make test`. `.ci/run` runs what CI does.
# Everything is installed into .venv; nothing else on the machine is changed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VM_TEST_SECONDS := 300
KUBERNETES := go
SOAK_SECONDS := 600
SOURCES := pyproject.toml liken_events/__init__.py

.DEFAULT_GOAL := help
.PHONY: help run test test-vm test-cluster soak check lint types imports stubs coverage bench bench-vm bench-cluster clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | expand -t 12

run: $(VENV)/.installed ## publish this machine's devices and follow them (a simulated machine if it has none)
	@$(BIN)/liken-events run --cluster directory --simulate-if-empty desk $(ARGS)

test: $(VENV)/.dev ## the test suite
	@$(BIN)/python -m pytest $(ARGS)

test-vm: $(VENV)/.vm ## the agent on a real kernel with real devices, in QEMU (some minutes)
	@$(BIN)/python -m pytest tests/vm --timeout=$(VM_TEST_SECONDS) $(ARGS)

soak: $(VENV)/.vm ## everything at random on a real kernel, and faults (10 minutes; SOAK_SECONDS=…, SOAK_SEED=…)
	@SOAK_SECONDS=$(SOAK_SECONDS) SOAK_SEED=$(SOAK_SEED) $(BIN)/python -m pytest tests/vm/soak -s $(ARGS)

test-cluster: $(VENV)/.cluster ## the agent with a real API server, kubelet and containerd (builds them once: 10 minutes; KUBERNETES=v1.34)
	@$(BIN)/python -m tests.cluster.real.programs $(KUBERNETES)
	@KUBERNETES=$(KUBERNETES) $(BIN)/python -m pytest tests/cluster/real --timeout=$(VM_TEST_SECONDS) $(ARGS)

bench-vm: $(VENV)/.vm ## latency on a real kernel in QEMU, beside polling (some 20 minutes)
	@$(BIN)/python -m bench kernel --json bench/results/kernel.json $(ARGS)

bench-cluster: $(VENV)/.dev ## latency, bytes and 2,000 nodes with a real API server (some 20 minutes)
	@$(BIN)/python -m tests.cluster.real.programs
	@$(BIN)/python -m bench cluster --json bench/results/cluster.json $(ARGS)

check: lint types imports stubs coverage ## all that CI checks

lint: $(VENV)/.dev
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .

types: $(VENV)/.dev
	@$(BIN)/mypy

imports: $(VENV)/.dev
	@$(BIN)/lint-imports

stubs: $(VENV)/.dev
	@PYTHON=$(BIN)/python ./packaging/check-stubs

coverage: $(VENV)/.dev ## the test suite with its coverage, which must not fall
	@rm -f .coverage .coverage.*
	@$(BIN)/python -m coverage run -m pytest $(ARGS)
	@$(BIN)/python -m coverage combine -q
	@$(BIN)/python -m coverage report

bench: $(VENV)/.dev ## measure what the README claims (some minutes)
	@$(BIN)/python -m bench $(ARGS)

$(VENV)/.installed: $(SOURCES)
	@PYTHON=$(PYTHON) ./packaging/make-venv $(VENV)
	@echo "installing liken-events into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "installing what the tests need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group dev
	@touch $@

$(VENV)/.vm: $(VENV)/.dev
	@echo "installing what the tests on a real kernel need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group vm
	@touch $@

$(VENV)/.cluster: $(VENV)/.vm
	@echo "installing what the tests with a cluster need ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --group cluster
	@touch $@

clean: ## remove the virtual environment and all that tools left
	@rm -rf $(VENV) build *.egg-info .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
