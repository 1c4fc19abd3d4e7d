# Every target sets itself up: the environment is made once and again only when what it depends on changes.
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
BROWSER := $(VENV)/.browser
REPORT := paper/results/report.html
WHEEL := $(VENV)/wheel
OLDEST := $(VENV)/oldest
DOCS := $(VENV)/docs
INSTALL := -m pip install --quiet --constraint constraints.txt
# Two processes with one thread each: more threads than cores make small tests wait for each other.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n 2

.PHONY: help demo quick test check docs wheel-test oldest-test browser-test screenshots audit bench \
	portable format clean

help:
	@echo "make demo    prune the shipped model and show what it keeps (half a minute)"
	@echo "make quick   lint, types and the fast tests: for every save"
	@echo "make test    lint, types, all tests of ssmprune and of paper/, doctests, examples"
	@echo "make check   lint and types alone"
	@echo "make docs    the pages as a site in site/; a warning is an error"
	@echo "make wheel-test     build the wheel, install it into a new environment, run the README and the tutorial there"
	@echo "make oldest-test    the fast tests with the lowest versions that pyproject.toml allows (Python 3.11)"
	@echo "make browser-test   the report and exported models in Debian's chromium (installed as root, once)"
	@echo "make screenshots    pictures of the report for the docs, REPORT=$(REPORT)"
	@echo "make audit   compare the pinned packages with a vulnerability database (needs the network)"
	@echo "make bench   measure speed and memory (about ten minutes on a quiet machine)"
	@echo "make portable   the C file on other processors (qemu) and Cortex-M4, and what docs/certified.md promises of it"
	@echo "                (more than an hour; Debian's compilers and checkers are installed as root, once)"
	@echo "make format  let ruff fix what it can"

$(READY): pyproject.toml paper/pyproject.toml constraints.txt
	test -x $(PY) || python3 -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) $(INSTALL) --editable '.[all,dev]' --editable ./paper
	touch $@

demo: $(READY)
	$(VENV)/bin/ssmprune demo

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

quick: check
	$(PYTEST) -m "not slow" --hypothesis-profile=quick

test: check
	$(PYTEST)

# In an environment of its own: the site's packages are no part of ours. Not --quiet: it hides warnings from --strict.
docs: $(DOCS)/.ready
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict
	@! grep -rnoE '<(script|link|img)[^>]*(src|href)="https?://[^"]*' site --include='*.html' | grep -v report.html

$(DOCS)/.ready: pyproject.toml constraints.txt
	test -x $(DOCS)/bin/python || python3 -m venv $(DOCS)
	$(DOCS)/bin/python $(INSTALL) $$($(DOCS)/bin/python -c "import tomllib; \
		print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['docs'])")
	touch $@

wheel-test:
	rm -rf dist $(WHEEL)
	python3 -m venv $(WHEEL)
	$(WHEEL)/bin/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(WHEEL)/bin/python $(INSTALL) "$$(echo dist/*.whl)[torch,plot,report]" pytest hypothesis
	$(WHEEL)/bin/python -m pytest tests/wheel/test_installed.py tests/wheel/test_pages.py -k "not tutorial"
	$(WHEEL)/bin/python $(INSTALL) "$$(echo dist/*.whl)[torch,export]"
	$(WHEEL)/bin/python -m pytest tests/wheel/test_pages.py -k tutorial
	$(WHEEL)/bin/python $(INSTALL) "$$(echo dist/*.whl)[torch,data,plot,report]" ./paper
	$(WHEEL)/bin/python -m pytest tests/wheel/test_with_paper.py

oldest-test:
	rm -rf $(OLDEST)
	python3 -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --constraint .ci/oldest.txt --editable '.[all,dev]' --editable ./paper
	OMP_NUM_THREADS=1 $(OLDEST)/bin/python -m pytest -n 2 -m "not slow" -W default

$(BROWSER): $(READY)
	$(PY) $(INSTALL) --editable '.[browser]'
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
	$(PY) $(INSTALL) --editable '.[bench]'
	$(PY) benchmarks/run.py

portable: $(READY)
	(for tool in qemu-aarch64-static aarch64-linux-gnu-gcc arm-none-eabi-gcc arm-linux-gnueabi-gcc \
		riscv64-linux-gnu-gcc s390x-linux-gnu-gcc clang cppcheck valgrind; do command -v $$tool || exit 1; done) || \
		(apt-get update -qq && apt-get install -qq --no-install-recommends qemu-user-static gcc-arm-none-eabi \
		libnewlib-arm-none-eabi gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabi \
		libc6-dev-armel-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross gcc-s390x-linux-gnu \
		libc6-dev-s390x-cross clang cppcheck valgrind)
	$(PY) scripts/portable.py
	$(PY) scripts/same_bits.py
	$(PY) scripts/count_instructions.py
	$(PY) scripts/certify.py

format: $(READY)
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
