# Every target sets itself up: the environment is made once and again only when what it depends on changes.
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser
REPORT := docs/results/report.html

.PHONY: help demo test browser-test screenshots check audit bench portable format clean

help:
	@echo "make demo    prune a model and print what it did"
	@echo "make test    lint, types, tests, doctests, examples"
	@echo "make browser-test   the report in chromium, which Debian's packages bring (as root, once)"
	@echo "make screenshots    pictures of the report for the docs, REPORT=$(REPORT)"
	@echo "make check   lint and types alone"
	@echo "make audit   compare the pinned packages with a vulnerability database (needs the network)"
	@echo "make bench   measure speed and memory (about ten minutes on a quiet machine)"
	@echo "make portable   the C file on aarch64 (qemu) and Cortex-M4; cross compilers come by Debian's packages (as root, once)"
	@echo "make format  let ruff mend what it can"

$(READY): pyproject.toml constraints.txt
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	touch $@

demo: $(READY)
	$(VENV)/bin/ssmprune demo

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

test: check
	$(PY) -m pytest

$(BROWSER): $(READY)
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[browser]'
	command -v chromedriver || \
		(apt-get update -qq && apt-get install -qq --no-install-recommends chromium chromium-driver)
	touch $@

browser-test: $(BROWSER)
	$(PY) -m pytest browser

screenshots: $(BROWSER)
	$(PY) browser/screenshots.py $(REPORT) docs

# In an environment of its own, and not part of CI: it asks a vulnerability database, which may know of something new any day.
audit: constraints.txt
	test -x $(VENV)/audit/bin/pip-audit || \
		(python3 -m venv $(VENV)/audit && $(VENV)/audit/bin/pip install --quiet pip-audit==2.10.1)
	$(VENV)/audit/bin/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

bench: $(READY)
	$(PY) -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(PY) benchmarks/run.py

portable: $(READY)
	command -v qemu-aarch64-static aarch64-linux-gnu-gcc arm-none-eabi-gcc || \
		(apt-get update -qq && apt-get install -qq --no-install-recommends qemu-user-static gcc-arm-none-eabi \
		libnewlib-arm-none-eabi gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
	$(PY) scripts/portable.py

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
