# make demo | lint | test | test-real | search | test-heavy | flaky | bench | referee | install     each sets up what it needs
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Bytecode of everything, on all cores at once (pip takes one), also where PYTHONDONTWRITEBYTECODE is set: there every start would
# compile anew, which takes 4 s. What a package has that does not compile is nothing that it needs.
COMPILE := $(BIN)/python -m compileall -qq -j 0 $(VENV)/lib llama_load locustfiles || true

.PHONY: demo golden test test-real servers search test-heavy flaky test-containers fuzz bench referee referee-clients pictures site install lint clean
.DEFAULT_GOAL := demo

demo: $(VENV)/.demo
	@$(BIN)/llama-load demo

# Every process of pytest would compile all tests anew where PYTHONDONTWRITEBYTECODE is set: 8 s of CPU time.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/pytest
# A failure is a failure. Only those that judge the clock, which run alone, are tried once more, because a virtual machine stands still
# for seconds now and then: -rR prints which, and the last line counts them.
TWICE := --reruns 1 -rR
with_mark = $(shell grep -rl --include='test_*.py' 'mark[.]$(1)' tests)
TIMED = $(call with_mark,timing)

# Heavy tests are not even imported, by none of the processes.
QUICK := -m "not heavy and not timing" --ignore tests/heavy

# Most tests wait for a server, so more of them than cores run at a time. Those that judge the clock run alone.
test: $(VENV)/.dev
	$(PYTEST) -n 3 --dist worksteal $(QUICK)
	$(PYTEST) -m "timing and not heavy" $(TWICE) $(TIMED)

# vLLM, llama-cpp-python and llama.cpp's programs live in the user's cache, in folders named by a hash of what was asked for.
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/llama-load/venvs
folder_of = $(CACHE)/$(1)-$(shell cat scripts/install.sh scripts/requirements/$(1).txt | sha256sum | cut -c1-12)

HEAVY = PYTEST_TIMEOUT=300 HEAVY_LLAMA_CPP=$(call folder_of,llama_cpp) HEAVY_VLLM=$(call folder_of,vllm) HEAVY_LLAMA_CPP_PYTHON=$(call folder_of,llama_cpp_python) HEAVY_AIDER=$(call folder_of,aider) $(PYTEST)
$(VENV)/.heavy: $(VENV)/.dev
	@scripts/debian.sh
	@$(PIP) -e '.[heavy]'
	@touch $@

servers: $(VENV)/.heavy
	@$(foreach server,vllm llama_cpp_python llama_cpp aider,PYTHON=$(PYTHON) scripts/install.sh $(server) $(call folder_of,$(server)) &&) true

# What is another program without epoll and kernel stamps, as on macOS, and without the compiled receiver.
define without_what_linux_has
	LLAMA_LOAD_PORTABLE=1 $(PYTEST) -m "portable and not heavy and not timing" -n 2 $(call with_mark,portable)
	LLAMA_LOAD_RECEIVER=python $(PYTEST) -m "not heavy and not timing" -n 2 $(addprefix tests/loadgen/wire/test_,connections.py exchange.py slab.py)
endef

# A whole run for each thing that only the real one shows.
test-real: servers
	$(HEAVY) -m "real and not timing" -n 3 --dist loadfile tests/heavy
	$(without_what_linux_has)

# Flaws of verdicts, swarms under simulation, fuzzers, pairs of faults, strangers, a long run: each for this time, from a seed of the day
# on or from SEED=7. The same seed looks at the same cases, as far as the time lets it.
SECONDS ?= 60
search: $(VENV)/.heavy
	SEARCH_SECONDS=$(SECONDS) $(if $(SEED),SEARCH_SEED=$(SEED)) $(PYTEST) -m search -n 3 --dist load -v --durations 0 $(call with_mark,search)

# All of it, for a release. AUDIT=optional accepts that the database of known vulnerabilities cannot be reached.
test-heavy: servers
	$(HEAVY) -m "heavy and not timing" -n 2 --dist loadfile
	$(HEAVY) -m "heavy and timing" $(TWICE) $(TIMED)
	$(without_what_linux_has)
	$(BIN)/python scripts/audit.py $(BIN)

# The suite RUNS times beside two busy processes: what failed at least once is in build/flaky and printed.
flaky: $(VENV)/.dev
	$(BIN)/python -m scripts.find_flaky $(or $(RUNS),10)

# Part of test-heavy; alone, with what the containers print.
test-containers: $(VENV)/.heavy
	$(PYTEST) -m heavy tests/heavy/test_containers.py tests/repository/test_docker_files.py -v -s

# Which outputs of about 80 kept runs a change has changed, with a diff of their texts; the digests are kept anew.
golden: $(VENV)/.dev
	$(BIN)/python -m tests.golden

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
	@$(foreach client,vllm aiperf guidellm genai_bench llama_benchy evalscope k6,$(call install_client,$(client),$(PYTHON)))
	@$(foreach client,inference_perf endpoints,$(call install_client,$(client),$(PYTHON312)))

# 20 minutes for each of RUNS on a machine that does nothing else; the same command continues. The table is in build/referee.
RUNS ?= 1
referee: referee-clients
	$(BIN)/python -m benchmarks.referee --runs $(RUNS)

# The documentation as a site, in build/site. A link that leads nowhere is an error.
site: $(VENV)/.dev
	@$(PIP) -e '.[site]'
	$(BIN)/python -m scripts.make_site build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f scripts/mkdocs.yaml

pictures: $(VENV)/.dev
	@$(PIP) -e '.[docs]'
	$(BIN)/python -m scripts.make_pictures

install: $(VENV)/.dev

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "llama-load needs Python 3.11 or newer, $(PYTHON) is older: make PYTHON=python3.12 demo"; exit 1; }
	@echo "Creating $(VENV) …"
	@$(PYTHON) -m venv $(VENV)

# The receiver is compiled by the installation (scripts/hatch_build.py).
BUILT := pyproject.toml scripts/hatch_build.py llama_load/loadgen/wire/_receiver.c

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
