# Two commands do everything: `make demo` and `make test`. Both install Python
# packages into .venv. `make test` also wants Bazel, Chromium and iproute2: if one
# is missing, and you are root, it installs Debian's with apt-get, system-wide. As
# anyone else it installs none; then the tests in Chromium and of cables are
# skipped, and without Bazel it fails, unless you say `make test BAZEL=no`.

PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
OLDEST_TENSORFLOW = $(shell $(PYTHON) -c "import runpy; \
  print(runpy.run_path('tf_cdops/base/version.py')['TENSORFLOW_OLDEST'])")
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check
# A file's tests share set-up and devices, so each file stays in one process. On
# two cores half of them wait, for programs and for TensorFlow's threads. Two took
# 18 minutes and four 11 to 13, with other work beside; three took 12 by themselves.
PYTEST := -m pytest -n 3 --dist=loadfile
# Steps of each algorithm, and of each pair.
CAMPAIGN_STEPS := 5000
CAMPAIGN_PAIR_STEPS := 1000
BAZEL ?= yes
REQUIREMENTS := setup.py tf_cdops/base/version.py

# Keras writes a settings file where it feels at home: not in the user's.
export KERAS_HOME := $(CURDIR)/$(VENV)/keras

.PHONY: demo test bench bench-links campaign lint types chromium iproute2 pytest bazel \
  bazel-all test-oldest clean

demo: $(VENV)/.demo
	$(VENV)/bin/python -m tf_cdops demo

test: lint types pytest $(if $(filter no,$(BAZEL)),,bazel)

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .

types: $(VENV)/.dev
	$(VENV)/bin/mypy

chromium:  # In which a test looks at the page of `tf_cdops explain`.
	third_party/chromium/install.sh

iproute2:  # With which LocalCluster lays cables.
	third_party/iproute2/install.sh

pytest: $(VENV)/.dev chromium iproute2
	$(VENV)/bin/python $(PYTEST)

bazel: $(VENV)/.dev
	third_party/bazel/test.sh $(VENV)

bazel-all: $(VENV)/.dev chromium iproute2  # Those too that pytest has run.
	third_party/bazel/test.sh $(VENV) all

bench: $(VENV)/.dev  # The better part of an hour; leave the machine alone.
	$(VENV)/bin/python benchmarks/suite.py

bench-links: $(VENV)/.dev iproute2  # Hours; it goes on where it was stopped.
	$(VENV)/bin/python -m benchmarks.links.suite
	$(VENV)/bin/python -m benchmarks.links.wires

campaign: $(VENV)/.dev  # Hours: thousands of steps of every spec, and faults.
	for mode in function eager session keras workers; do \
	  $(VENV)/bin/python -m tests.long_run --mode=$$mode \
	    --steps=$(CAMPAIGN_STEPS) --pair_steps=$(CAMPAIGN_PAIR_STEPS) \
	    || exit 1; \
	done
	for guard in raise drop; do \
	  $(VENV)/bin/python -m tests.long_run --mode=faults --specs=auto \
	    --on_nonfinite=$$guard --steps=$(CAMPAIGN_STEPS) || exit 1; \
	done
	$(VENV)/bin/python -m tests.fault_campaign
	$(VENV)/bin/python -m tests.guard_campaign
	$(VENV)/bin/python -m tests.timeline_campaign

test-oldest: $(OLDEST)/.dev
	$(OLDEST)/bin/python $(PYTEST)

clean:
	rm -rf $(VENV) $(OLDEST) .bazel build dist *.egg-info

%/bin/python:
	$(PYTHON) -m venv $*

.PRECIOUS: %/bin/python

$(VENV)/.demo: $(REQUIREMENTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[cpu,demo]'
	touch $@

$(VENV)/.dev: $(REQUIREMENTS) | $(VENV)/bin/python
	$(VENV)/bin/python $(PIP_INSTALL) --editable '.[cpu,demo,dev]'
	touch $@

$(OLDEST)/.dev: $(REQUIREMENTS) | $(OLDEST)/bin/python
	$(OLDEST)/bin/python $(PIP_INSTALL) --editable '.[demo,dev]' \
	  'tensorflow-cpu==$(OLDEST_TENSORFLOW).*'
	touch $@
