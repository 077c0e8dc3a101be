# Every target sets up what it needs: a virtual environment in .venv with the versions of
# constraints.txt, and the wheel, built and installed into it.
# PYTHON=<interpreter> chooses another Python, of 3.11 to 3.13; PROFILE=release
# builds the wheel as it ships; CARGO_TARGET_DIR moves what cargo builds.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.SILENT:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
TARGET := $(abspath $(or $(CARGO_TARGET_DIR),target))
# maturin builds without libpython, cargo test with it; in one folder each would rebuild what the
# other built.
EXTENSION_TARGET := $(TARGET)/extension

# The wheel that the targets use is linked the quick way (Cargo.toml): a minute instead of three.
# What is measured and what CI tests last is the one that ships.
ifneq ($(filter bench bench-peers bench-training stress stress-trainers,$(MAKECMDGOALS)),)
PROFILE := release
endif
PROFILE ?= quick
export PROFILE

WHEELS := $(TARGET)/wheels/$(PROFILE)

export PYO3_PYTHON := $(abspath $(BIN)/python)
export CARGO_TARGET_DIR := $(TARGET)
# What the shell has activated is not what the targets use.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME
# Where it is set, each of some hundred processes compiles PyTorch and TRL anew: 12 s instead of 5.
unexport PYTHONDONTWRITEBYTECODE

RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml)
PYTHON_SOURCES := $(shell find python -name '*.py' -o -name '*.pyi' -o -name py.typed -o -name '*.json' -o -path '*/assets/*')
WHEEL_SOURCES := Cargo.toml Cargo.lock pyproject.toml README.md LICENSE $(RUST_SOURCES) $(PYTHON_SOURCES)

.PHONY: help
help: ## show this list
	grep -hE '^[a-z0-9-]+:.*##' Makefile | sed -E 's/^([a-z0-9-]+):.*## */\1\t/' | expand -t 16

## ---- setting up ----

# Before anything else, once for all that make calls: an environment of the wrong Python goes.
ifneq ($(filter-out help clean check-cargo,$(or $(MAKECMDGOALS),help)),)
ifndef PYTHON_CHECKED
ifneq ($(shell scripts/check-python $(VENV) >&2 && echo checked),checked)
$(error there is no Python to use, see above)
endif
export PYTHON_CHECKED := yes
endif
endif

# Before packages are installed, which takes minutes; cargo itself would say so only after them.
RUST_VERSION := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
.PHONY: check-cargo
check-cargo:
	if ! found=$$(cargo --version 2>&1); then
		echo 'Guerdon is compiled with Rust $(RUST_VERSION) or later, and there is no cargo that runs: install it from' \
			'https://rustup.rs (if it is installed, run ". ~/.cargo/env" first).' >&2
		exit 1
	fi
	read -r _ version _ <<<"$$found"
	if ! printf '%s\n' $(RUST_VERSION) "$$version" | sort --version-sort --check=quiet; then
		echo "Guerdon is compiled with Rust $(RUST_VERSION) or later, and this is $$version ($$(command -v cargo)):" \
			'"rustup update" brings it, or https://rustup.rs.' >&2
		exit 1
	fi

# uv installs in seconds what takes pip minutes; scripts/uv-pip hands it pip's settings.
UV_PIP := $(BIN)/python scripts/uv-pip
INSTALL := $(UV_PIP) install --quiet -c constraints.txt
# No stamp is made for what failed, so that the next `make` does it again.
FAILED = { echo "== failed, for the reason above: is there a network, and room on the disk ($$(df -Ph . | awk 'NR == 2 { print $$4 }') free)?" \
	"The next make goes on from here." >&2; exit 1; }

$(VENV)/.installer: constraints.txt
	python="$${PYTHON:-$$(scripts/find-python 3.11 3.12 3.13)}"
	echo "== environment: $(VENV), $$("$$python" --version)"
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV) || { rm -rf $(VENV); $(FAILED); }
	$(BIN)/python -m pip --disable-pip-version-check --no-input --quiet install -c constraints.txt uv || $(FAILED)
	$(INSTALL) maturin pip || $(FAILED)
	touch $@

# What the demo needs, and what all targets need: two stamps of one environment.
$(VENV)/.demo-dependencies: GROUP := demo
$(VENV)/.dependencies: GROUP := dev
$(VENV)/.demo-dependencies $(VENV)/.dependencies: $(VENV)/.installer pyproject.toml
	echo '== packages: PyTorch, TRL and what else "$(GROUP)" names (5 GB where nothing is there yet)'
	start=$$SECONDS
	$(INSTALL) --group $(GROUP) || $(FAILED)
	touch $@
	echo "== packages: installed, $$((SECONDS - start)) s"

# Changes when a source file comes or goes, which the times of the remaining ones don't tell.
$(VENV)/.sources: FORCE
	mkdir -p $(VENV)
	echo '$(sort $(WHEEL_SOURCES))' | cmp -s - $@ || echo '$(sort $(WHEEL_SOURCES))' >$@
.PHONY: FORCE
FORCE:

# A release wheel is the one that ships.
BUILD_QUICK = CARGO_TARGET_DIR=$(EXTENSION_TARGET) $(BIN)/maturin build --profile $(PROFILE) --interpreter $(BIN)/python --out $(WHEELS)
BUILD_PORTABLE = BIN=$(BIN) TARGET=$(EXTENSION_TARGET) ARCHES=$$(uname -m) \
	PYTHONS=$$($(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])') scripts/build-wheels $(WHEELS)
$(WHEELS)/.built: $(VENV)/.installer $(VENV)/.sources $(WHEEL_SOURCES)
	rm -rf $(WHEELS)
	mkdir -p $(WHEELS)
	start=$$SECONDS
	crates=$$(cargo tree --locked --quiet --package guerdon-bindings --edges normal,build --prefix none --format '{p}' | sort -u | wc -l) || $(FAILED)
	echo "== wheel: compiling up to $$crates crates ($(PROFILE))"
	# Cargo's lines, counted; what else it says is shown as it is.
	$(if $(filter release,$(PROFILE)),$(BUILD_PORTABLE),$(BUILD_QUICK)) 2>&1 | awk '
		/^ *Compiling guerdon-bindings / { print "== wheel: the last crate, and linking"; fflush() }
		/^ *(Compiling|Fresh) / { if (++n % 25 == 0) { print "== wheel: " n " crates"; fflush() } next }
		/^ *(Updating|Locking|Downloading|Downloaded|Finished|Running) |^[^a-z0-9]* (Building|Found|Built|Using|Copied)/ { next }
		{ print; fflush() }' >&2 || $(FAILED)
	touch $@
	echo "== wheel: built, $$((SECONDS - start)) s"

# Installs the wheel once the packages named in PACKAGES are there; both are made side by side.
define install-wheel
+$(MAKE) --no-print-directory -j2 $(PACKAGES) $(WHEELS)/.built
if [ ! -e $(VENV)/.wheel-$(PROFILE) ] || [ $(WHEELS)/.built -nt $(VENV)/.wheel-$(PROFILE) ]; then
	# First, so that none speaks for a wheel that is installed by half.
	rm -f $(VENV)/.wheel-*
	$(UV_PIP) install --quiet --no-deps --no-index --reinstall $(WHEELS)/*.whl || $(FAILED)
	# Else threads compile it at its first import, which Python 3.11 does not always survive.
	$(BIN)/python -m compileall -q "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/guerdon"
	touch $(VENV)/.wheel-$(PROFILE)
fi
endef

.PHONY: setup
setup: PACKAGES := $(VENV)/.dependencies
setup: check-cargo ## the virtual environment with guerdon in it
	$(install-wheel)

.PHONY: setup-demo
setup-demo: PACKAGES := $(VENV)/.demo-dependencies
setup-demo: check-cargo
	$(install-wheel)

## ---- wheels ----

.PHONY: wheel
wheel: PROFILE := release
wheel: check-cargo ## the wheel that ships for the Python of .venv, into dist
	+$(MAKE) --no-print-directory PROFILE=release $(TARGET)/wheels/release/.built
	mkdir -p dist
	cp $(TARGET)/wheels/release/*.whl dist

.PHONY: wheels
wheels: PROFILE := release
wheels: check-cargo $(VENV)/.installer ## those for CPython 3.11 to 3.15 and 3.14t on x86-64 and aarch64, and the source distribution, into dist: an hour (PYTHONS=, ARCHES=: some)
	BIN=$(BIN) TARGET=$(EXTENSION_TARGET) scripts/build-wheels dist || $(FAILED)
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/maturin sdist --out dist || $(FAILED)

.PHONY: check-wheels
check-wheels: $(VENV)/.installer ## the wheels in dist as people meet them (PARTS="bullseye arm64": on other Debians too, with mmdebstrap)
	BIN=$(BIN) scripts/check-wheels dist

.PHONY: audit
audit: check-cargo $(VENV)/.installer ## licences and sources of the crates, known faults of Python packages (needs cargo-deny)
	BIN=$(BIN) scripts/audit

## ---- running ----

.PHONY: demo
demo: setup-demo ## train a small model with TRL, rewards through guerdon (ARGS=--serial: without)
	$(BIN)/python examples/demo.py $(ARGS)

## ---- documentation ----

MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs

.PHONY: docs
docs: $(VENV)/.dependencies ## the documentation site into target/site; a broken link or a bad docstring fails
	echo '== documentation'
	# Not quiet, which would hide the warnings that `--strict` counts.
	$(MKDOCS) build --strict --site-dir $(TARGET)/site 2>&1 | { grep -v '^INFO' || true; }
	echo '== written to $(TARGET)/site/index.html'

.PHONY: docs-serve
docs-serve: $(VENV)/.dependencies ## the documentation site on http://127.0.0.1:8000, rebuilt as its sources change
	$(MKDOCS) serve

## ---- checking ----

# tests/reruns.py says which failed tests run again; with RERUNS= none does.
RERUNS := --run-again
# WHOLE=1 runs what only `make test-all` does. A table's row is recorded from all of its tests.
WHOLE := $(findstring --record-compatibility,$(ARGS))
export RERUNS WHOLE
SELECT := $(RERUNS) $(if $(WHOLE),-m 'not soak')

# Most tests wait rather than compute, so that two cores can do with four processes.
JOBS := 4
PYTEST := $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadscope $(SELECT)

.PHONY: test
test: setup ## everything that CI runs on the Python of .venv, side by side
	log=$$(mktemp)
	nice -n 10 $(MAKE) --no-print-directory lint docs test-rust model-check >"$$log" 2>&1 &
	beside=$$!
	trap 'kill $$beside 2>/dev/null || true; rm -f "$$log"' EXIT
	failed=0
	$(MAKE) --no-print-directory test-python || failed=$$?
	echo '== waiting for lint, docs and the Rust tests'
	wait $$beside || failed=$$?
	cat "$$log"
	exit $$failed

.PHONY: test-all
test-all: ## the whole of everything, in each environment and on each Python: an hour and a half
	$(MAKE) --no-print-directory WHOLE=1 lint docs test-rust model-check test-pythons test-frameworks \
		test-verl test-ray test-vllm test-parallel test-trl-versions test-python

# Left to `make test`: trainers, whole programs, faults, and what imports PyTorch.
QUICK := $(filter-out %_docs.py %_benches.py %_examples.py,$(wildcard tests/test_*.py)) \
	$(filter-out tests/%.py,$(wildcard tests/registration tests/worker tests/submit tests/result))
.PHONY: test-quick
test-quick: setup ## unit tests of the crates and of the package, no trainers: two minutes after the first, which compiles
	echo '== cargo test, units'
	cargo test --workspace --locked --quiet --lib
	echo '== pytest, units'
	$(PYTEST) $(QUICK) -k 'not trl and not torch and not datasets and not pandas' $(ARGS)

.PHONY: lint
lint: check-cargo lint-rust lint-python lint-structure ## formats, clippy, ruff, mypy, stubs, direction of dependencies, prose

.PHONY: lint-rust
lint-rust: check-cargo $(VENV)/.dependencies
	echo '== formats, clippy'
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked --quiet -- -D warnings

.PHONY: lint-python
lint-python: setup
	echo '== ruff, mypy, stubs'
	$(BIN)/ruff check --quiet
	$(BIN)/ruff format --quiet --check
	$(BIN)/zizmor --offline --quiet --no-progress .github/workflows
	$(BIN)/mypy
	# From a folder without sources, so that the stubs are compared with what is installed; with mypy's
	# settings, without which it would read PyTorch.
	cd $(VENV) && bin/python -m mypy.stubtest --concise --mypy-config-file ../pyproject.toml \
		--allowlist ../scripts/stubtest-allowlist guerdon._native

# Which way imports go, the words of the glossary, the form of comments.
.PHONY: lint-structure
lint-structure: $(VENV)/.dependencies ## direction of imports, rooms and floors, folders without circles, prose
	echo '== structure: crates, modules, imports, prose'
	failed=0
	for crate in $$(cd rust && ls | grep -vx bindings); do
		tree=$$(cargo tree --locked --quiet --package guerdon-$$crate --edges all --target all --prefix none)
		if grep -E '^pyo3' <<<"$$tree"; then echo "guerdon-$$crate must know nothing of Python." >&2; failed=1; fi
	done
	$(BIN)/python scripts/rust-module-graph || failed=1
	$(BIN)/lint-imports --no-logo --no-cache >$(VENV)/imports.log || { failed=1; cat $(VENV)/imports.log; }
	$(BIN)/python scripts/package-rooms || failed=1
	$(BIN)/python scripts/check-prose || failed=1
	exit $$failed

.PHONY: mass
mass: ## lines of the product and of its tests, words of its docs
	python3 scripts/mass

.PHONY: test-rust
test-rust: check-cargo $(VENV)/.dependencies ## unit and property tests of the crates
	echo '== cargo test'
	cargo test --workspace --locked --quiet

.PHONY: model-check
model-check: check-cargo $(VENV)/.dependencies ## every interleaving of the grid, the groups, the sweeps, gates, sharing, limits and frames from elsewhere, with loom
	echo '== loom'
	# The whole workspace, though only two crates have models: so the dependencies are those that cargo
	# test built. Optimised a little: loom's threads have small stacks, and values that are not moved
	# in place fill them.
	cargo test --workspace --locked --features guerdon-core/loom,guerdon-inprocess/loom --config profile.dev.package.guerdon-core.opt-level=1 --config profile.dev.package.guerdon-inprocess.opt-level=1 --lib loom::

# The pages that commands write are tested in Chromium; where it is missing those tests are skipped.
# Only CI installs it by itself.
.PHONY: browser
browser:
	for name in chromium chromium-browser chromium-headless-shell google-chrome; do
		if command -v $$name >/dev/null; then exit 0; fi
	done
	if [ -z "$${CI:-}" ] || [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo '== no Chromium: the tests of pages are skipped (Debian: apt-get install chromium)'
		exit 0
	fi
	echo '== Chromium'
	log=$$(mktemp)
	{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends chromium; } >"$$log" 2>&1 ||
		{ tail -n 5 "$$log"; echo '== no Chromium could be installed: the tests of pages are skipped'; }
	rm -f "$$log"

.PHONY: test-python
test-python: setup ## the tests of the package (ARGS="-k name" for some)
	echo '== pytest'
	$(PYTEST) $(ARGS)

# An overlay: torch, transformers, trl and guerdon are those of .venv, so that it takes a minute and
# 1.5 GB instead of five times that.
VLLM := .venv-vllm
$(VLLM)/.dependencies: tests/vllm/requirements.txt $(VENV)/.dependencies
	echo '== dependencies of a vLLM server into $(VLLM)'
	rm -rf $(VLLM)
	$(BIN)/python -m venv --without-pip $(VLLM)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$$(echo $(VLLM)/lib/python*/site-packages)/below.pth"
	$(UV_PIP) install --python $(VLLM)/bin/python --quiet --no-deps -r $<
	touch $@

.PHONY: test-vllm
test-vllm: setup $(VLLM)/.dependencies ## with a real vLLM server on the CPU, in .venv-vllm (ARGS="-k name" for some)
	echo '== pytest with vLLM'
	$(VLLM)/bin/python -m pytest --timeout 600 $(SELECT) tests/vllm $(ARGS)

# On top of .venv likewise. DeepSpeed is built from source, with no extension of its own.
PARALLEL := .venv-parallel
$(PARALLEL)/.dependencies: tests/parallel/requirements.txt $(VENV)/.dependencies
	echo '== DeepSpeed into $(PARALLEL)'
	rm -rf $(PARALLEL)
	$(BIN)/python -m venv --without-pip $(PARALLEL)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$$(echo $(PARALLEL)/lib/python*/site-packages)/below.pth"
	DS_BUILD_OPS=0 $(UV_PIP) install --python $(PARALLEL)/bin/python --quiet --no-deps --no-build-isolation -r $<
	touch $@

.PHONY: test-parallel
test-parallel: setup $(PARALLEL)/.dependencies ## pipelines on two ranks under DDP, FSDP2 and DeepSpeed, on the CPU, in .venv-parallel
	echo '== pytest, parallel training'
	$(PARALLEL)/bin/python -m pytest $(SELECT) tests/parallel $(ARGS)

# Likewise, an environment for each TRL, and for packages built on TRL: above .venv lies that TRL,
# and the transformers that older ones need. 1.16 is the one of .venv.
TRL := .venv-trl
TRL_ENVIRONMENTS = $(patsubst %,$(TRL)/%/.dependencies,$(filter-out 1.16,$(TRL_VERSIONS)))
TRL_VERSIONS ?= 0.18 0.24 1.0 1.6 1.9 1.15 1.16 axolotl ms-swift unsloth openenv newest
$(TRL)/%/.dependencies: tests/trl_versions/requirements/%.txt $(VENV)/.dependencies
	echo '== TRL $* into $(@D)'
	rm -rf $(@D)
	$(BIN)/python -m venv --without-pip $(@D)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$$(echo $(@D)/lib/python*/site-packages)/below.pth"
	$(UV_PIP) install --python $(@D)/bin/python --quiet --no-deps -r $<
	touch $@
$(TRL)/newest/.dependencies: look-again

.PHONY: look-again
look-again:

.PHONY: test-trl-versions
test-trl-versions: setup $(TRL_ENVIRONMENTS) ## reward_funcs in the trainers of each TRL, in .venv-trl (TRL_VERSIONS="0.18 1.6": with these)
	for version in $(TRL_VERSIONS); do
		echo "== pytest, TRL $$version"
		python=$(TRL)/$$version/bin/python
		if [ $$version = 1.16 ]; then python=$(BIN)/python; fi
		asked=$$version
		if [ $$version = newest ]; then # reports, and fails nothing
			asked=$$($$python -c 'import trl; print(".".join(trl.__version__.split(".")[:2]))')
			case " $(TRL_VERSIONS) 1.16 " in *" $$asked "*) echo "== the newest TRL is $$asked, which is tried already"; continue ;; esac
		fi
		case $$asked in [0-9]*) tests=test_reward_funcs ;; *) tests=test_$${version//-/_} ;; esac
		TRL_VERSION=$$asked $$python -m pytest $(SELECT) tests/trl_versions/$$tests.py $(ARGS) || [ $$version = newest ]
	done

# On top of .venv likewise: what verl pins otherwise (transformers below 5.11) lies above what comes
# from there.
VERL := .venv-verl
# pip sees what lies below; uv would install PyTorch a second time.
OVERLAY_PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet \
	--python $(VERL)/bin/python
$(VERL)/.dependencies: tests/verl/constraints.txt $(VENV)/.dependencies
	echo '== verl and Ray into $(VERL)'
	rm -rf $(VERL)
	$(BIN)/python -m venv --without-pip $(VERL)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$$(echo $(VERL)/lib/python*/site-packages)/below.pth"
	$(OVERLAY_PIP) install -c $< verl ray
	touch $@

.PHONY: test-verl
test-verl: setup $(VERL)/.dependencies ## the reward manager in verl's real reward loop, on one Ray node and on two, in .venv-verl
	echo '== pytest, verl'
	rm -rf $(VERL)/lib/python*/site-packages/tests # verl's own; it would hide ours
	# What verl and Ray warn of is not ours.
	$(VERL)/bin/python -m pytest -W ignore -W error::guerdon.errors.GuerdonWarning $(SELECT) tests/verl $(ARGS)

# verl's environment has Ray.
.PHONY: test-ray
test-ray: setup $(VERL)/.dependencies ## dispatchers over three Ray nodes on this machine, with their faults, in .venv-verl
	echo '== pytest, Ray'
	rm -rf $(VERL)/lib/python*/site-packages/tests # verl's own; it would hide ours
	$(VERL)/bin/python -m pytest -W ignore -W error::guerdon.errors.GuerdonWarning $(SELECT) tests/ray $(ARGS)

# Frameworks with one call a sample, those that PyPI has: on top of .venv likewise.
FRAMEWORKS := .venv-frameworks
FRAMEWORKS_PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet \
	--python $(FRAMEWORKS)/bin/python
$(FRAMEWORKS)/.dependencies: tests/frameworks/requirements.txt tests/frameworks/requirements-no-deps.txt $(VENV)/.dependencies
	echo '== OpenRLHF, AReaL, verifiers and skyrl-gym into $(FRAMEWORKS)'
	rm -rf $(FRAMEWORKS)
	$(BIN)/python -m venv --without-pip $(FRAMEWORKS)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$$(echo $(FRAMEWORKS)/lib/python*/site-packages)/below.pth"
	$(FRAMEWORKS_PIP) install -r $<
	$(FRAMEWORKS_PIP) install --no-deps -r tests/frameworks/requirements-no-deps.txt
	touch $@

# NeMo-Gym asks for older packages than those, and for a newer Python than its agent needs.
NEMO_GYM := .venv-nemo-gym
NEMO_GYM_PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input --quiet \
	--python $(NEMO_GYM)/bin/python
$(NEMO_GYM)/.dependencies: tests/frameworks/nemo-gym-requirements.txt tests/frameworks/nemo-gym-requirements-no-deps.txt $(VENV)/.dependencies
	echo '== NeMo-Gym into $(NEMO_GYM)'
	rm -rf $(NEMO_GYM)
	$(BIN)/python -m venv --without-pip $(NEMO_GYM)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' >"$$(echo $(NEMO_GYM)/lib/python*/site-packages)/below.pth"
	$(NEMO_GYM_PIP) install -r $<
	$(NEMO_GYM_PIP) install --no-deps --ignore-requires-python -r tests/frameworks/nemo-gym-requirements-no-deps.txt
	touch $@

.PHONY: test-frameworks
test-frameworks: setup $(FRAMEWORKS)/.dependencies $(NEMO_GYM)/.dependencies ## reward functions in OpenRLHF, AReaL, verifiers, skyrl-gym and NeMo-Gym, in .venv-frameworks and .venv-nemo-gym
	echo '== pytest, frameworks'
	$(FRAMEWORKS)/bin/python -m pytest -W ignore -W error::guerdon.errors.GuerdonWarning tests/frameworks tests/integrations/frameworks $(ARGS)
	$(NEMO_GYM)/bin/python -m pytest -W ignore -W error::guerdon.errors.GuerdonWarning tests/frameworks/test_nemo_gym.py $(ARGS)

# What verl's trainers import beyond its reward loop.
$(VERL)/.trainers: $(VERL)/.dependencies
	$(OVERLAY_PIP) install -c tests/verl/constraints.txt verl ray cachetools fastapi TransferQueue uvicorn
	touch $@

.PHONY: environments
environments: $(VENV)/.dependencies $(PARALLEL)/.dependencies $(TRL_ENVIRONMENTS) $(VLLM)/.dependencies $(VERL)/.dependencies ## what the targets install, without building anything

.PHONY: test-pythons
test-pythons: ## the source distribution, and wheels of it on each Python from 3.11 to 3.13 (PYTHONS="3.12 3.14t": on these)
	TARGET=$(TARGET)/pythons scripts/test-pythons

.PHONY: test-debian-pythons
test-debian-pythons: $(VENV)/.dependencies ## on Python 3.14 and 3.15, in a chroot of Debian's (root, mmdebstrap)
	unset PYO3_PYTHON
	BIN=$(BIN) TARGET=$(TARGET)/pythons scripts/test-debian-pythons

.PHONY: check-aarch64
check-aarch64: check-cargo $(VENV)/.installer ## type-check for 64-bit ARM
	TARGET=$(TARGET) scripts/check-aarch64

ROUNDS := 10
.PHONY: stress
stress: setup ## the soak tests too, more cases and deeper model checking
	LOOM_MAX_PREEMPTIONS=4 cargo test --workspace --locked --features guerdon-core/loom,guerdon-inprocess/loom --config profile.dev.package.guerdon-core.opt-level=1 --config profile.dev.package.guerdon-inprocess.opt-level=1 --lib loom::
	PROPTEST_CASES=5000 cargo test --workspace --locked
	$(BIN)/python -m pytest -m '' --timeout 1200 tests/stress tests/rewards/test_math.py tests/profile/test_planted.py $(ARGS)
	$(BIN)/python -m pytest -q --timeout 3600 --hypothesis-profile=search tests/contract $(ARGS)
	# The faults again and again: what a race hides in one run shows in ten.
	for round in {1..$(ROUNDS)}; do $(BIN)/python -m pytest -q -m 'fault and not soak' tests/stress $(ARGS); done

.PHONY: stress-trainers
stress-trainers: setup $(VLLM)/.dependencies $(VERL)/.trainers ## the soak tests of the trainers: TRL's, verl's, Ray's, and several ranks with a vLLM server
	$(BIN)/python -m pytest -m soak --timeout 1200 tests/integrations $(ARGS)
	$(VERL)/bin/python -m pytest -m soak -W ignore -W error::guerdon.errors.GuerdonWarning --timeout 1200 tests/verl $(ARGS)
	$(VERL)/bin/python -m pytest -m soak -W ignore -W error::guerdon.errors.GuerdonWarning --timeout 1200 tests/ray $(ARGS)
	$(VLLM)/bin/python -m pytest -m soak --timeout 1200 tests/vllm $(ARGS)

.PHONY: bench
bench: setup ## speed of the core (criterion) and of the lanes beside their peers (pytest-benchmark)
	cargo bench --locked --package guerdon-core --bench '*'
	$(BIN)/python -m pytest --benchmark-only --timeout 1200 benches/python/bench_*.py $(ARGS)

# On top of .venv: clients that Guerdon is compared with.
PEERS := .venv-peers
$(PEERS)/.dependencies: benches/peers/requirements.txt $(VENV)/.dependencies
	echo '== litellm and openai into $(PEERS)'
	rm -rf $(PEERS)
	$(BIN)/python -m venv --without-pip $(PEERS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$$(echo $(PEERS)/lib/python*/site-packages)/below.pth"
	$(UV_PIP) install --python $(PEERS)/bin/python --quiet -r $<
	touch $@

.PHONY: bench-peers
bench-peers: setup $(PEERS)/.dependencies ## judges with and without faults, beside litellm's Router and openai-python: three minutes
	$(PEERS)/bin/python -m benches.peers $(ARGS)

.PHONY: bench-training
bench-training: setup ## the published asynchronous-reward recipe, scaled down, in four modes: an hour (ARGS="--runs 1 --steps 4 --learning-steps 8": less)
	$(BIN)/python -m benches.training $(ARGS)

.PHONY: clean
clean: ## remove what the targets made
	rm -rf $(VENV) $(PARALLEL) $(TRL) $(VLLM) $(VERL) $(FRAMEWORKS) $(NEMO_GYM) $(PEERS) $(TARGET) dist demo-out .hypothesis .mypy_cache .pytest_cache .ruff_cache .benchmarks
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
