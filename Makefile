# `make up` and `make test` need Python 3.11 or newer, make and a package index; nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
LOCK_TOOLS := build/lock-tools
PIP_COMPILE := $(LOCK_TOOLS)/bin/pip-compile --quiet --generate-hashes --allow-unsafe --strip-extras --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

ENGINE ?= docker

# Tests start hundreds of processes: what they import is compiled once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: up test pytest lint types kubectl lock image release-check bench chaos clean
.DELETE_ON_ERROR:

# Everything on one machine, until Ctrl-C. It ends with this make, even when make is killed.
up: $(READY)
	@exec $(BIN)/redispatch up --with-parent $$PPID

test:
	@$(MAKE) --no-print-directory --jobs 2 pytest lint types

pytest: kubectl
	$(BIN)/pytest --numprocesses 4

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# What renders k8s/ for its checks, from the index where the machine has none.
kubectl: $(READY)
	$(BIN)/python -m k8s.check.bring

bench: $(READY)
	$(BIN)/python -m benchmarks.bench

chaos: $(READY)
	$(BIN)/python -m benchmarks.chaos

# The environment, made once and again when what it is made from has changed.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "redispatch needs Python 3.11 or newer: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

# Exact versions with hashes of every file, and no address, so that any index will do: of everything, and from that of
# what runs in the image, and of what builds the wheel for it.
lock:
	$(PYTHON) -m venv $(LOCK_TOOLS)
	$(LOCK_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(PIP_COMPILE) --all-extras --output-file requirements.lock pyproject.toml requirements.in
	grep async-timeout requirements.in | $(PIP_COMPILE) --extra agent --extra apprise --extra otel --constraint requirements.lock \
		--output-file requirements-image.lock pyproject.toml -
	$(PIP_COMPILE) --only-build-deps --build-deps-for wheel --constraint requirements.lock \
		--output-file requirements-build.lock pyproject.toml

# The image, named after the version; ENGINE=podman for another builder.
image:
	version=$$(sed -n 's/^__version__ = "\(.*\)"/\1/p' common/__init__.py) && \
	revision=$$(git rev-parse HEAD) && \
	$(ENGINE) build --build-arg VERSION=$$version --build-arg REVISION=$$revision --tag redispatch:$$version .

# What would be published: built, looked at, installed where nothing else is, and used. Asks a package index.
release-check: $(READY)
	$(BIN)/pytest --verbose tests/release.py

# What was made from the sources; never ./data, which holds alerts.
clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info tests/signatures/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
