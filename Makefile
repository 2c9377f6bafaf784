# Every target sets up what it needs in virtual environments of its own; a
# machine with Python >= 3.11, a C compiler and make is enough.  What the targets
# do stands in tools/dev.py.
#
#   make build PYTHON=python3.13     another default Python
#   make test PYTEST_ARGS='-k tcp'   some of the Python tests
#   make test WORKERS=0              in one process, as a debugger wants it
#   make test-all EXCEPT=test        without what make test runs

PYTHON ?= python3

TARGETS := build demo test test-all check format docs docs-serve bench explore wheel release sdist clean

.PHONY: $(TARGETS)
$(TARGETS):
	@$(PYTHON) tools/dev.py $@

.DEFAULT_GOAL := build
