# `make up` and `make test` need Python 3.11 or newer, make and a package index; nothing else.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
LOCK_TOOLS := build/lock-tools

.PHONY: up test lint types kubectl lock bench chaos clean
.DELETE_ON_ERROR:

# Everything on one machine, until Ctrl-C. It ends with this make, even when make is killed.
up: $(READY)
	@exec $(BIN)/redispatch up --with-parent $$PPID

test: lint types kubectl
	$(BIN)/pytest --numprocesses 3

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

# Exact versions with hashes of every file, and no address, so that any index will do.
lock:
	$(PYTHON) -m venv $(LOCK_TOOLS)
	$(LOCK_TOOLS)/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	$(LOCK_TOOLS)/bin/pip-compile --quiet --all-extras --generate-hashes --allow-unsafe --strip-extras \
		--no-header --no-annotate --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
		--output-file requirements.lock pyproject.toml requirements.in

# What was made from the sources; never ./data, which holds alerts.
clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info tests/signatures/node_modules
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
