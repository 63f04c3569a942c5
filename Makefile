# make demo   compiles the example network for this machine, verifies every kernel and prints accuracy and speed
# make test   installs what the tests need and runs them all
# make bench  measures this machine, beside other libraries, which it installs
# All work on a fresh machine with Python 3.10 to 3.13 and a C compiler; each has a virtual environment of its own.

PYTHON ?= python3
DEMO_VENV ?= .venv/demo
TEST_VENV ?= .venv/test
BENCH_VENV ?= .venv/bench
BENCH_OPTIONS ?=
JOBS ?= $(shell nproc)

.PHONY: demo test check bench clean

demo: $(DEMO_VENV)/ready
	$(DEMO_VENV)/bin/python examples/digits/run.py

test: $(TEST_VENV)/ready
	./tests/system_packages.sh
	$(MAKE) --no-print-directory check
	$(TEST_VENV)/bin/python -m pytest -q -n $(JOBS) --dist loadfile

check: $(TEST_VENV)/ready
	$(TEST_VENV)/bin/ruff check .
	$(TEST_VENV)/bin/ruff format --check -q .
	$(TEST_VENV)/bin/mypy
	MYPYPATH=examples/digits $(TEST_VENV)/bin/mypy examples/digits/*.py
	MYPYPATH=benchmarks $(TEST_VENV)/bin/mypy benchmarks/*.py benchmarks/peers/*.py

bench: $(BENCH_VENV)/ready
	$(BENCH_VENV)/bin/python benchmarks/compile_time.py
	$(BENCH_VENV)/bin/python benchmarks/run.py $(BENCH_OPTIONS)

$(DEMO_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(DEMO_VENV)
	$(DEMO_VENV)/bin/python -m pip install --quiet --editable '.[onnx]'
	touch $@

$(TEST_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(TEST_VENV)
	$(TEST_VENV)/bin/python -m pip install --quiet --editable '.[test]'
	touch $@

$(BENCH_VENV)/ready: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --editable '.[bench]'
	touch $@

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
