# The developer manual. `make help` lists what there is; every target does its own set-up.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

# The lock files pin versions and hashes. Tools of the virtual environment come first, so that
# maturin is found without activating it.
export PATH := $(CURDIR)/$(BIN):$(PATH)
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
LOCKED := --require-hashes --requirement

# What the installed package is made from. Built files in between are not sources.
SOURCES := Cargo.toml Cargo.lock pyproject.toml LICENSE THIRD-PARTY-NOTICES.txt \
    $(wildcard README.md) \
    $(shell find rust python spark_plugin -type f \
        ! -path '*/__pycache__/*' ! -name '*.jar' ! -name '*.so' ! -name '*.partial' 2>/dev/null)

# A folder is its own prerequisite, so that a removed source file is noticed as well.
FOLDERS := $(shell find rust python spark_plugin -type d ! -name __pycache__ ! -name _native \
    2>/dev/null)

# Older minors of Spark, by the pins of requirements/spark, and what is tested on them.
SPARK_MINORS ?= $(basename $(notdir $(wildcard requirements/spark/*.txt)))
ON_SPARK     := PYTHONPATH=tests $(BIN)/python -m support.spark.other_spark

# What was found where, for docs/compatibility.md.
RECORDED := -p support.spark.results --results tests/spark/results.json

# Files of tests go to two processes, each with a Spark of its own: tests often wait. They go in
# the order of tests/conftest.py, not those with most tests first, which need not take longest.
TWO_AT_A_TIME := --numprocesses=2 --dist=loadfile --no-loadscope-reorder

# The extension for Python has no tests of its own. The tests build the same crates once more, for a
# library that a JVM loads: with another choice of crates all would be compiled again.
TESTED_CRATES := --workspace --exclude holdfast-py

# For each kind of bytes.
FUZZ_SECONDS ?= 600

# Where test-full and fuzz begin: examples and histories are new each time. SEED=... repeats a run.
SEED := $(or $(SEED),$(shell date +%s))

CHECKED_PYTHON := python/holdfast python/holdfast_build examples/flights examples/harness
LINTED_PYTHON  := python tests examples benches docs

.DEFAULT_GOAL := help

##@ Use

.PHONY: demo
demo: $(VENV)/installed  ## set up, build, and run the demo (DEMO_ARGS=... are passed on)
	PYTHONPATH=examples $(BIN)/python -m flights $(DEMO_ARGS)

.PHONY: wheel
wheel: $(VENV)/locked  ## one wheel with extension, JNI library and plugin jars, in dist/
	rm -f dist/*.whl  # of another version: README installs what is there
	$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@ls -l dist/*.whl

.PHONY: release
release: $(VENV)/locked build/release/locked  ## in dist/release/: manylinux wheels for x86-64 and aarch64, and the sources
	rustup target add x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
	rm -rf dist/release
	PATH="$(PATH):$(CURDIR)/build/release/bin" \
	    CARGO_ZIGBUILD_ZIG_PATH=$(CURDIR)/build/release/bin/python-zig \
	    PYTHONPATH=python $(BIN)/python -m holdfast_build release
	build/release/bin/twine check --strict dist/release/*
	for wheel in dist/release/*.whl; do build/release/bin/auditwheel show $$wheel || exit 1; done

##@ Develop

.PHONY: test
test: test-rust test-java test-python  ## all tests on the newest Spark

.PHONY: test-rust
test-rust: tools  ## tests of the Rust crates
	PROPTEST_RNG_SEED=0 cargo test $(TESTED_CRATES) --features holdfast-jni/conformance --locked

.PHONY: test-java
test-java: $(VENV)/installed  ## tests of what the plugin decides, without Spark
	PYTHONPATH=tests $(BIN)/python -m support.spark.java_tests

.PHONY: test-python
test-python: $(VENV)/installed  ## tests of the installed package: python, command line, Spark
	$(BIN)/python -m pytest $(TWO_AT_A_TIME) $(PYTEST_ARGS)

.PHONY: test-matrix
test-matrix: $(VENV)/installed  ## the operator matrix in full, on 1, 20 and 200 partitions
	$(ON_SPARK) newest tests/spark/stores/test_operators.py -m '' $(RECORDED) $(PYTEST_ARGS)

# What is tested on a Spark of its own, such as on/4.0/stores/test_crash.py: two runs at a time.
on/%:
	$(ON_SPARK) $(firstword $(subst /, ,$*)) tests/spark/$(patsubst $(firstword $(subst /, ,$*))/%,%,$*) $(PYTEST_ARGS)

TWO_RUNS := --no-print-directory --jobs=2 --keep-going --output-sync=target

.PHONY: test-versions
test-versions: $(VENV)/installed  ## operators, crashes, file systems and upgrades on every Spark minor
	$(MAKE) $(TWO_RUNS) $(SPARK_MINORS:%=on/%/) on/newest/ PYTEST_ARGS="-m versions $(RECORDED) $(PYTEST_ARGS)"
	$(ON_SPARK) newest tests/spark/stores/test_upgrades.py -m full $(RECORDED) $(PYTEST_ARGS)

# Those that are short fill the gap in the end.
QUICK := stores/test_operators.py stores/test_crash.py isolation/test_isolated_operators.py
.PHONY: test-versions-quick
test-versions-quick: $(VENV)/installed  ## one case of every operator, a kill -9 and a key that fails on each older minor (450 MB each, once)
	$(if $(SPARK_MINORS),$(MAKE) $(TWO_RUNS) $(foreach file,$(QUICK),$(SPARK_MINORS:%=on/%/$(file))))

.PHONY: compatibility
compatibility: $(VENV)/installed  ## the tables of docs/compatibility.md, from what test-versions found
	PYTHONPATH=tests $(BIN)/python -m support.spark.compatibility

.PHONY: reference
reference: $(VENV)/installed  ## the tables of docs/reference, and the plots of the tables in benches/figures
	PYTHONPATH=tests $(BIN)/python -m support.reference
	$(BIN)/python benches/plots.py

# In a JVM each, on the Spark release that they were published with.
.PHONY: test-spark-suites
test-spark-suites: $(VENV)/installed  ## Spark's own test suites on Holdfast (380 MB, once; SUITES=... runs some)
	PYTHONPATH=tests $(BIN)/python -m support.spark.spark_suites $(SUITES)

.PHONY: test-full
test-full: $(VENV)/installed  ## what takes too long for every run: the whole matrix, kill -9 at every point, new examples (SEED=... repeats them)
	PROPTEST_RNG_SEED=$(SEED) cargo test $(TESTED_CRATES) --features holdfast-jni/conformance --locked
	HOLDFAST_SEED=$(SEED) $(BIN)/python -m pytest -m 'full or hypothesis' \
	    --hypothesis-profile=fresh --hypothesis-seed=$(SEED) $(PYTEST_ARGS)

.PHONY: fuzz
fuzz: tools  ## forged files, metadata and ids, each for FUZZ_SECONDS (600), requests and histories; what fails names its seed
	HOLDFAST_FUZZ_SECONDS=$(FUZZ_SECONDS) HOLDFAST_FUZZ_FIRST=$(SEED) \
	    cargo test -p holdfast-core --locked --test forged -- --nocapture
	PROPTEST_CASES=20000 PROPTEST_RNG_SEED=$(SEED) cargo test -p holdfast-wire --locked strangers
	HOLDFAST_SIM_HISTORIES=20000 HOLDFAST_SIM_FIRST=$(SEED) \
	    cargo test -p holdfast-sim --locked --test histories -- --nocapture

.PHONY: models
models:  ## the models of the protocols with larger bounds than in every run
	cargo test --release -p holdfast-sim --locked --test bad_rows --test commits --test isolation --test leases --test moves -- --ignored --nocapture

.PHONY: faults
faults: $(VENV)/installed  ## what each provider does under the same faults: the tables of docs/faults.md (FAULTS_ARGS=... are passed on)
	PYTHONPATH=tests:examples $(BIN)/python -m support.spark.fault_report $(FAULTS_ARGS)

.PHONY: soak
soak: soak-stores soak-executors soak-regional  ## all soaks, one after the other

.PHONY: soak-stores
soak-stores: $(VENV)/installed  ## 500 batches of a query with random restarts (SOAK_ARGS=... are passed on)
	PYTHONPATH=tests:examples $(BIN)/python -m support.spark.soak $(SOAK_ARGS)

.PHONY: soak-executors
soak-executors: $(VENV)/installed  ## 50 random kills of executors in one run on an S3 server (likewise)
	PYTHONPATH=tests:examples $(BIN)/python -m support.spark.executor_soak $(SOAK_ARGS)

.PHONY: soak-regional
soak-regional: $(VENV)/installed  ## 300 batches of a regional pipeline with random kills (likewise)
	PYTHONPATH=tests:examples $(BIN)/python -m support.spark.regional_soak $(SOAK_ARGS)

.PHONY: lint
lint: $(VENV)/installed  ## formatting, clippy, rustdoc, ruff, mypy, stubs, circles of files, documentation; a warning is an error
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features holdfast-jni/conformance,holdfast-py/testing --locked -- \
	    -D warnings -A clippy::disallowed-methods  # tests may call what libraries may not
	cargo clippy --workspace --features holdfast-jni/conformance --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked
	$(BIN)/ruff check $(LINTED_PYTHON)
	$(BIN)/ruff format --check $(LINTED_PYTHON)
	$(BIN)/mypy $(CHECKED_PYTHON)
	$(BIN)/stubtest holdfast._core
	PYTHONPATH=tests $(BIN)/python -m support.structure
	$(MAKE) --no-print-directory docs

# Draws the pictures of the site, which need no network then.
PICTURES := build/mermaid/node_modules

$(PICTURES): docs/mermaid/package.json docs/mermaid/package-lock.json
	@mkdir -p $(@D)
	@cp $^ $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --loglevel=error && touch $@ || \
	    { rm -rf $@; echo "make: npm could not fetch Mermaid: pictures of the site stay text"; }

.PHONY: docs
docs: $(VENV)/installed $(PICTURES)  ## the documentation as a site, in build/docs; a warning is an error
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going --conf-dir docs . build/docs
	@echo "make: build/docs/index.html"

.PHONY: format
format: $(VENV)/locked  ## format Rust and Python
	cargo fmt --all
	$(BIN)/ruff check --fix-only --quiet $(LINTED_PYTHON)
	$(BIN)/ruff format $(LINTED_PYTHON)

.PHONY: bench
bench: $(VENV)/installed  ## benchmarks; prints ratios, draws the figures (BENCH_ARGS=... are passed on)
	$(BIN)/python benches/run.py $(BENCH_ARGS)

.PHONY: venv
venv: $(VENV)/installed  ## .venv with the locked packages and the package built from this tree

.PHONY: notices
notices: $(VENV)/locked  ## write THIRD-PARTY-NOTICES.txt again, after a change of Cargo.lock
	PYTHONPATH=python $(BIN)/python -m holdfast_build notices

.PHONY: lock
lock:  ## write requirements/*.txt again from requirements/*.in
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet uv
	for name in build dev release notebooks; do build/lock/bin/uv pip compile --quiet --upgrade --universal \
	    --python-version 3.11 --generate-hashes --no-header --no-annotate \
	    --no-emit-index-url --no-emit-find-links \
	    requirements/$$name.in --output-file requirements/$$name.txt || exit 1; done

.PHONY: clean
clean:  ## remove everything that was built, .venv included
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	rm -f python/holdfast/_native/*.jar* python/holdfast/*.so
	find python tests examples benches -name __pycache__ -type d -prune -exec rm -rf {} +
	cargo clean

.PHONY: help
help:  ## this text
	@awk 'BEGIN {FS = ":.*## "} \
	    /^##@/ {printf "\n%s\n", substr($$0, 5)} \
	    /^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' Makefile

# --- set-up -------------------------------------------------------------------------------------

.PHONY: tools
tools:
	@.ci/check-tools $(PYTHON)

# Order-only: the check runs before the rest, but never makes it stale.
$(VENV)/locked: requirements/build.txt requirements/dev.txt | tools
	@echo "make: packages of requirements/ into $(VENV) (PySpark alone is 450 MB)"
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) install $(LOCKED) requirements/build.txt
	$(PIP) install --no-build-isolation $(LOCKED) requirements/dev.txt
	@touch $@

# A folder of its own: what checks and publishes wheels is not what Holdfast is tested with.
build/release/locked: requirements/release.txt | tools
	$(PYTHON) -m venv --clear build/release
	build/release/bin/python -m pip install --quiet $(LOCKED) requirements/release.txt
	@touch $@

$(VENV)/installed: $(VENV)/locked $(SOURCES) $(FOLDERS) | tools
	@echo "make: Rust libraries, plugin jars and package into $(VENV)"
	$(PIP) install --no-build-isolation --no-deps .
	@touch $@
