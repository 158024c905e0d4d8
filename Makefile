# Each check has one definition, here: people, CI and hooks all call these targets.

PYTHON ?= python3
PORT   ?=
GPU    ?=
ARGS   ?=

ifneq ($(filter-out 0 no false,$(GPU)),)
# onnxruntime and onnxruntime-gpu install the same folder, so that each has an environment of its own.
RUNTIME := gpu
VENV    := .venv-gpu
else
RUNTIME := cpu
VENV    := .venv
endif
VENV_DEV := .venv-dev
VENV_FAST := .venv-fast

PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
SOURCES      = $(wildcard model export service bench tests)
# PORT and GPU win over the settings in the environment; where they are not given, those stand.
SETTINGS     = $(if $(PORT),POLYHEAD_PORT='$(PORT)') $(if $(filter gpu,$(RUNTIME)),POLYHEAD_DEVICE=cuda)

# ONNX Runtime's official builds report usage to their maker unless told otherwise (docs/decisions/0002-no-telemetry.md).
export ORT_DISABLE_TELEMETRY := 1

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## Show this list
	@echo 'make TARGET [PORT=8000] [GPU=1] [MODEL=...] [PYTHON=python3] [ARGS="..."]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# An environment is keyed on pyproject.toml: the second call does nothing until that file changes.
# Should an installation fail half-way, its stamp is not written and the next call goes on from there.
# The runtime is installed without compiling every module to bytecode: Python does that for those it imports, and a fresh
# clone answers ten seconds earlier.

$(VENV)/.installed: pyproject.toml requirements/$(RUNTIME).txt
	@$(call create_venv,$(VENV))
	@echo 'Installing the serving runtime ($(RUNTIME)) into $(VENV) ...'
	@$(VENV)/bin/python $(PIP_INSTALL) --no-compile --constraint requirements/$(RUNTIME).txt --editable '.[$(RUNTIME),pictures]'
	@touch $@

$(VENV_DEV)/.installed: pyproject.toml
	@$(call create_venv,$(VENV_DEV))
	@echo 'Installing the development and training tools into $(VENV_DEV) (torch among them: this can take minutes) ...'
	@$(VENV_DEV)/bin/python $(PIP_INSTALL) --editable '.[cpu,train,dev]'
	@touch $@

$(VENV_FAST)/.installed: pyproject.toml requirements/cpu.txt
	@$(call create_venv,$(VENV_FAST))
	@echo 'Installing the serving runtime and what its tests need into $(VENV_FAST) (no torch) ...'
	@$(VENV_FAST)/bin/python $(PIP_INSTALL) --constraint requirements/cpu.txt --editable '.[cpu,pictures,test]'
	@touch $@

define create_venv
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Polyhead needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": name another, as in: make PYTHON=python3.12")' && \
{ test -x $(1)/bin/pip || $(PYTHON) -m venv $(1); }
endef

.PHONY: serve
serve: $(VENV)/.installed ## Serve the bundles on http://127.0.0.1:8000 (PORT=8931 elsewhere, GPU=1 on CUDA)
	@$(SETTINGS) exec $(VENV)/bin/python -m service $(ARGS)

.PHONY: dev
dev: $(VENV_DEV)/.installed ## Create .venv-dev with the train and dev extras

.PHONY: model
model: $(VENV_DEV)/.installed ## Import a model, from a folder or the Hugging Face hub, into bundles/ (MODEL=Helsinki-NLP/opus-mt-en-de)
	@test -n '$(MODEL)' || { echo 'name the model: make model MODEL=Helsinki-NLP/opus-mt-en-de (or a folder)'; exit 2; }
	@$(VENV_DEV)/bin/python -m model import '$(MODEL)' 'runs/$(notdir $(MODEL))' --force $(ARGS)
	@$(VENV_DEV)/bin/python -m export 'runs/$(notdir $(MODEL))' 'bundles/$(notdir $(MODEL))' --precision fp32 --precision int8 --force

.PHONY: test
test: $(VENV_DEV)/.installed ## Run the whole test suite on all cores (ARGS="-k beam" for a part)
	@$(VENV_DEV)/bin/python -m pytest --numprocesses auto --dist loadfile $(ARGS)

.PHONY: test-fast
test-fast: $(VENV_FAST)/.installed ## Run the tests that need no torch, in .venv-fast (about a minute)
	@$(VENV_FAST)/bin/python -m pytest --numprocesses auto --dist loadfile $(ARGS)

# Clients whose requirements contradict the project's, or each other's: each has an environment of its own.
CLIENTS := $(basename $(notdir $(wildcard requirements/clients/*.txt)))

.venv-clients-%/.installed: requirements/clients/%.txt
	@$(call create_venv,$(@D))
	@echo 'Installing the client $* into $(@D) ...'
	@$(@D)/bin/python $(PIP_INSTALL) --requirement $<
	@touch $@

.PHONY: test-clients
test-clients: $(VENV_DEV)/.installed $(CLIENTS:%=.venv-clients-%/.installed) ## Install clients that need environments of their own, and test with all clients
	@$(VENV_DEV)/bin/python -m pytest tests/clients tests/service/test_clients.py $(wildcard tests/service/heads/*/test_*clients.py) $(ARGS)

.PHONY: lint
lint: $(VENV_DEV)/.installed ## Check style (ruff) and types (mypy, strict)
	@$(VENV_DEV)/bin/ruff check $(SOURCES)
	@$(VENV_DEV)/bin/ruff format --check $(SOURCES)
	@$(VENV_DEV)/bin/mypy $(SOURCES)

.PHONY: format
format: $(VENV_DEV)/.installed ## Format the code and fix what ruff can fix by itself
	@$(VENV_DEV)/bin/ruff check --fix-only $(SOURCES)
	@$(VENV_DEV)/bin/ruff format $(SOURCES)

.PHONY: bench
bench: $(VENV_DEV)/.installed ## Measure beside CTranslate2 (ARGS="--json results.json")
	@$(VENV_DEV)/bin/python -m bench translate $(ARGS)

.PHONY: docker
docker: ## Build the CPU image, polyhead:cpu
	@docker build --target cpu --tag polyhead:cpu .

# Universal: one file for Python 3.11 and newer on every system. The files name no index, so that any mirror will do.
LOCK := $(VENV_DEV)/bin/uv pip compile --quiet --universal --python-version 3.11 --upgrade --custom-compile-command 'make lock'

.PHONY: lock
lock: $(VENV_DEV)/.installed ## Resolve all that the server installs anew, into requirements/ (needs the network)
	@for runtime in cpu gpu; do \
		$(LOCK) --extra $$runtime --extra pictures --output-file requirements/$$runtime.txt pyproject.toml && \
		$(LOCK) --extra $$runtime --extra pictures --constraint requirements/$$runtime.txt --generate-hashes \
			--output-file requirements/$$runtime-hashes.txt pyproject.toml || exit 1; \
	done
	@for client in $(CLIENTS); do \
		$(LOCK) --output-file requirements/clients/$$client.txt requirements/clients/$$client.in || exit 1; \
	done

.PHONY: audit
audit: $(VENV_DEV)/.installed ## Look for known vulnerabilities in what is locked (advisory, needs the network)
	-@for runtime in cpu gpu; do \
		$(VENV_DEV)/bin/pip-audit --disable-pip --require-hashes --requirement requirements/$$runtime-hashes.txt; \
	done

.PHONY: clean
clean: ## Remove the environments and the caches
	@rm -rf .venv .venv-gpu .venv-dev .venv-fast .venv-clients-* .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	@find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +
