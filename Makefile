# make demo and make test do all the set-up: a virtual environment in .venv and everything the project needs.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# Versions of Spark that the matrix runs on; each gets an environment of its own.
VERSIONS ?= 3.5 4.0 4.1 4.2
MATRIX := $(addprefix test-spark-,$(VERSIONS))

.PHONY: demo demo-kafka test test-services test-long test-matrix $(MATRIX) check docs bench clean java

demo: $(READY) java
	$(BIN)/penstock demo $(ARGS)

demo-kafka: $(READY) java
	$(BIN)/penstock demo --source kafka $(ARGS)

# Spark uses both cores by itself; everything else takes one core per process.
test: $(READY) java
ifdef ARGS
	$(BIN)/python -m pytest $(ARGS)
else
	@status=0; set -x; \
	$(BIN)/python -m pytest --ignore=tests/spark --numprocesses=2 || status=1; \
	$(BIN)/python -m pytest tests/spark -m "not apart" || status=1; \
	exit $$status
endif

# Against real services, in a process of its own. What cannot be had here (no Maven, no network) is skipped, in a line each.
test-services: $(READY) java
	@tests/services/fetch_packages.sh
ifdef ARGS
	$(BIN)/python -m pytest tests/services -rs $(ARGS)
else
	@status=0; set -x; \
	$(BIN)/python -m pytest tests/services -m "not long" -rs || status=1; \
	$(BIN)/python -m pytest tests/spark -m apart || status=1; \
	exit $$status
endif

# What .ci/run has no time for: kills on clusters and of jobs with state, whole suites over Connect, lakehouse tables.
test-long: $(READY) java
	@tests/services/fetch_packages.sh
	$(BIN)/python -m pytest tests/services -m long -rs $(ARGS)

# The Spark tests on each older version, one after the other: make test-matrix VERSIONS="4.0 4.2" ARGS="-k gate".
test-matrix:
	@status=0; for target in $(MATRIX); do $(MAKE) --no-print-directory $$target || status=1; done; exit $$status

$(MATRIX): test-spark-%: .venv-%/.ready java
	.venv-$*/bin/python -m pytest tests/spark tests/services/test_operations.py -rs $(ARGS)

# Everything as pinned, but for Spark itself.
.venv-%/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-$*
	grep -v -e '^pyspark==' -e '^py4j==' constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-$*/constraints.txt --editable '.[dev]' 'pyspark==$*.*'
	@touch $@

.PRECIOUS: .venv-%/.ready

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	PYTHONPATH=. $(BIN)/lint-imports

# The documentation site, in build/site. A broken link ends it.
docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "build/site/index.html"

bench: $(READY) java
	$(BIN)/python -m benchmarks $(ARGS)

java:
	@command -v java >/dev/null 2>&1 || [ -x "$${JAVA_HOME:-/nonexistent}/bin/java" ] || { \
	  echo "Java is missing: install a JDK or JRE, version 17 or later (Debian: apt-get install openjdk-17-jre-headless)" >&2; exit 2; }

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed: make PYTHON=python3.11" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $(READY)

clean:
	rm -rf $(VENV) .venv-* build .pytest_cache .mypy_cache .ruff_cache .hypothesis demo
