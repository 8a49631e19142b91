# make demo | test | test-heavy | test-containers | fuzz | bench | referee | install | lint     each sets up what it needs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Bytecode of everything, on all cores at once (pip takes one), also where PYTHONDONTWRITEBYTECODE is set: there every start would
# compile anew, which takes 4 s. What a package has that does not compile is nothing that it needs.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib llama_load locustfiles || true

.PHONY: demo test test-heavy test-containers fuzz bench referee referee-clients pictures site install lint clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	@$(BIN)/llama-load demo

# Every process of pytest would compile all tests anew where PYTHONDONTWRITEBYTECODE is set: 8 s of CPU time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
# A virtual machine stands still for seconds now and then: what fails of those that judge the clock gets a second look, and -rR names it.
TWICE := --reruns 1 -rR
# What fails beside other tests is tried once more, alone.
AGAIN := --last-failed --last-failed-no-failures none -v
TIMED = $(shell grep -rl --include='test_*.py' 'mark[.]timing' tests)

# Heavy tests are not even imported, by none of the processes.
QUICK := -m "not heavy and not timing" --ignore tests/heavy

# Most tests wait for a server, so more of them than cores run at a time. Those that judge the clock run alone.
test: $(VENV)/.dev
	$(PYTEST) -n 5 --dist worksteal $(QUICK) || $(PYTEST) $(QUICK) $(AGAIN)
	$(PYTEST) -m "timing and not heavy" $(TWICE) $(TIMED)

# vLLM, llama-cpp-python and llama.cpp's programs live in the user's cache, in folders named by a hash of what was asked for.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/llama-load/venvs
folder_of = $(CACHE)/$(1)-$(shell cat scripts/install.sh scripts/requirements/$(1).txt | sha256sum | cut -c1-12)

# At the end the tests of the wire with reads in Python, and once more without epoll and kernel stamps, as on macOS: the tests in which this differs, which are those of the wire
# (connections, exchanges, TLS, the alarm), of the clock, and a run each against the real llama-server, with faults, in an open loop
# and with two processes. Last the audit of dependencies: AUDIT=optional accepts that its database cannot be reached.
# Two files at a time; what fails there is tried once more, alone. Those that judge the clock run alone.
HEAVY = HEAVY_LLAMA_CPP=$(call folder_of,llama_cpp) HEAVY_VLLM=$(call folder_of,vllm) HEAVY_LLAMA_CPP_PYTHON=$(call folder_of,llama_cpp_python) HEAVY_AIDER=$(call folder_of,aider) $(PYTEST)
HEAVY_UNTIMED = -m "heavy and not timing"
test-heavy: $(VENV)/.dev
	@scripts/debian.sh
	@PYTHON=$(PYTHON) scripts/install.sh vllm $(call folder_of,vllm)
	@PYTHON=$(PYTHON) scripts/install.sh llama_cpp_python $(call folder_of,llama_cpp_python)
	@PYTHON=$(PYTHON) scripts/install.sh llama_cpp $(call folder_of,llama_cpp)
	@PYTHON=$(PYTHON) scripts/install.sh aider $(call folder_of,aider)
	@$(PIP) -e '.[heavy]'
	$(HEAVY) $(HEAVY_UNTIMED) -n 2 --dist loadfile || $(HEAVY) $(HEAVY_UNTIMED) $(AGAIN)
	$(HEAVY) -m "heavy and timing" $(TWICE) $(TIMED)
	LLAMA_LOAD_PORTABLE=1 $(PYTEST) -m "portable and not heavy" $(TWICE)
	LLAMA_LOAD_RECEIVER=python $(PYTEST) -m "not heavy" tests/wire $(TWICE)
	$(BIN)/python scripts/audit.py $(BIN)

# Part of test-heavy; alone, with what the containers print.
test-containers: $(VENV)/.dev
	@scripts/debian.sh
	@$(PIP) -e '.[heavy]'
	$(PYTEST) -m heavy tests/heavy/test_containers.py tests/repository/test_docker_files.py -v -s

# The packages of the image with their hashes, newest versions that pyproject.toml allows.
lock: $(VENV)/.dev
	@$(PIP) 'uv>=0.8'
	scripts/lock.sh $(BIN)

# Thousands of new examples for every test that makes its own, where the suite tries the same hundred each time.
fuzz: $(VENV)/.dev
	LLAMA_LOAD_HYPOTHESIS=fuzz $(PYTEST) -m "hypothesis and not heavy"

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.clients
	$(BIN)/python -m benchmarks.bounds
	$(BIN)/python -m benchmarks.swarm
	$(BIN)/python -m benchmarks.scale
	$(BIN)/python -m benchmarks.arrivals
	$(BIN)/python -m benchmarks.verdicts
	$(BIN)/python -m benchmarks.steadiness
	$(BIN)/python -m benchmarks.reports
	$(BIN)/python -m benchmarks.large_prompts
	$(BIN)/python -m benchmarks.live_figures
	$(BIN)/python -m benchmarks.telemetry
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.starved
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.sweep_cells

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The load generators that the referee judges, each in an environment of its own. Two of them need Python 3.12; k6 is a binary.
PYTHON312 ?= python3.12
install_client = PYTHON=$(2) scripts/install.sh $(1) $(call folder_of,$(1)) || echo "$(1) is not installed and will not be tested";
referee-clients: $(VENV)/.dev
	@$(foreach client,vllm aiperf guidellm genai_bench k6,$(call install_client,$(client),$(PYTHON)))
	@$(foreach client,inference_perf endpoints,$(call install_client,$(client),$(PYTHON312)))

# 20 minutes for each of RUNS on a machine that does nothing else; the same command continues. The table is in build/referee.
RUNS ?= 1
referee: referee-clients
	$(BIN)/python -m benchmarks.referee --runs $(RUNS)

# The documentation as a site, in build/site. A link that leads nowhere is an error.
site: $(VENV)/.dev
	@$(PIP) -e '.[site]'
	$(BIN)/python -m scripts.make_site build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

pictures: $(VENV)/.dev
	@$(PIP) -e '.[docs]'
	$(BIN)/python -m scripts.make_pictures

install: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "llama-load needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=python3.12 demo"; exit 1; }
	@echo "Creating $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

# The receiver is compiled by the installation (hatch_build.py).
BUILT := pyproject.toml hatch_build.py llama_load/wire/_receiver.c

$(VENV)/.demo: $(BUILT) | $(VENV)/bin/python
	@echo "Installing llama-load with its extra 'demo' …"
	@$(PIP) --no-compile -e '.[demo]'
	@$(COMPILE)
	@touch $@

$(VENV)/.dev: $(BUILT) | $(VENV)/bin/python
	@echo "Installing llama-load with its extra 'dev' …"
	@$(PIP) --no-compile -e '.[dev]'
	@$(COMPILE)
	@touch $@ $(VENV)/.demo

clean:
	rm -rf $(VENV) runs
