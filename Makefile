PYTHON ?= $(shell command -v python3 || command -v python3.11)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PEERS := scikit-learn omikuji implicit irspack cmfrec napkinxc libpecos libmultilabel

.PHONY: demo lint check test docs pictures package versions bench peers clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "labelgap needs Python 3.11 or later: make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev]"
	touch $(READY)

demo: $(READY)
	$(BIN)/labelgap demo --output demo

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/oxlint --deny-warnings src/labelgap/serve/reviews/page

check: lint
	$(BIN)/pytest --quick --numprocesses=2 --dist=worksteal

test: lint
	$(BIN)/pytest --numprocesses=2 --dist=loadfile

docs: $(READY)
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build/html
	@echo 'Open docs/_build/html/index.html'

pictures: $(READY)  # of README and documentation, which are stored with them; needs Chromium
	$(BIN)/python docs/pictures/build.py

package: $(READY)  # build the packages, install the wheel into an empty environment and use it there
	$(BIN)/python -m tools.check_package

versions: $(READY)  # tests with the lowest and newest dependencies; make versions PYTHONS="python3.11 python3.13"
	$(BIN)/python -m tools.check_versions $(if $(PYTHONS),--python $(PYTHONS))

bench: $(READY)
	$(BIN)/python -m benchmarks

peers:  # the packages that benchmarks compare with, in .peers, since they need older versions of NumPy and SciPy
	$(PYTHON) -m venv .peers
	@mkdir -p .peers/logs
	@for name in $(PEERS); do \
	  if .peers/bin/python -m pip install --quiet $$name > .peers/logs/$$name 2>&1; then echo "$$name: installed"; \
	  else echo "$$name: not installed"; tail -n 3 .peers/logs/$$name; fi; done

clean:
	rm -rf $(VENV) .peers demo dist results docs/_build docs/gallery/pages .mypy_cache .ruff_cache .pytest_cache
