# Two commands do everything: `make demo` and `make test`. Each sets up .venv by itself, once.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard src/afor/native/kernel*.[ch]) \
	$(wildcard src/afor/bench/models/native/eegnet*.[ch])

# Containers often set this. Without stored bytecode each process, and each worker of a study, would
# compile torch from its sources: the import then takes three times as long.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-slow test-everywhere test-versions test-oldest release-check check bench bench-networks docs report-picture physionet physionet-power batch-norm-study shift-study \
	open-study awake-study bursts-study amplitude-study stream-study adaptation-study variants-study rivals-study clean

help:
	@echo "make demo       the main job on synthetic subjects: sets up, runs, shows the result"
	@echo "make test       the test suite"
	@echo "make check      lint, format and types"
	@echo "make bench      a step's speed against the alternatives and the targets, as ratios (five minutes)"
	@echo "make bench-networks  speed of the networks and of training, as ratios"
	@echo "make docs       the documentation as HTML"
	@echo "make test-slow  the long versions of the tests"
	@echo "make test-versions  the optimizer's tests under other versions of torch (VERSIONS=..., ENVIRONMENTS=folder)"
	@echo "make test-oldest  the benchmark with the oldest versions of constraints-oldest.txt"
	@echo "make release-check  whether this commit can be released: archives, README, environments, documentation"
	@echo "make test-everywhere  the tests that depend on the machine, as on eleven machines"
	@echo "make physionet  the study on real EEG (DATA=folder of the recordings; an hour or two)"
	@echo "make batch-norm-study  EEGNet with two momenta of batch norm (DATA as above; minutes)"
	@echo "make shift-study  the study over the distance between synthetic subjects (minutes)"
	@echo "make open-study the paper's comparison on open data (DATA=folder of the recordings; three to four hours)"
	@echo "make bursts-study amplitude-study stream-study adaptation-study awake-study variants-study rivals-study"
	@echo "                when the memory of the second moment matters (EYES=folder of the recordings; hours)"

$(BIN)/python:
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

# One stamp per set of extras; a set is installed again when what it is made from changes. Python
# compiles a module when it is first imported; pip would take a minute to compile all of them.
$(VENV)/.ready-%: $(SOURCES) | $(BIN)/python
	@echo "Installing afor[$*] into $(VENV) (once; a minute or two) ..."
	@$(PIP) install -qq --no-compile --constraint constraints.txt --editable ".[$*]"
	@touch $@

demo: $(VENV)/.ready-bench
	@$(BIN)/afor demo

test: $(VENV)/.ready-dev
	@$(BIN)/python -m pytest -n auto --dist worksteal

test-slow: $(VENV)/.ready-dev
	@$(BIN)/python -m pytest -n auto -m slow --timeout 3600

# Each version takes several GB while its tests run. VERSIONS is a list of torch versions.
ENVIRONMENTS ?= $(or $(TMPDIR),/tmp)/afor-versions
VERSIONS ?= 2.8.0 2.15.0
test-versions:
	@$(PYTHON) tools/test_versions.py --environments $(ENVIRONMENTS) $(addprefix --torch ,$(VERSIONS))

OLDEST_TESTS = tests/bench/test_facade.py tests/bench/cli/test_entry.py tests/bench/study tests/bench/report \
	tests/bench/notebook tests/bench/store tests/bench/data/datasets/test_recordings.py
test-oldest:
	@$(PYTHON) tools/test_versions.py --environments $(ENVIRONMENTS) --torch 2.13.0 \
		--constraint constraints-oldest.txt $(addprefix --tests ,$(OLDEST_TESTS))

release-check: $(VENV)/.ready-dev
	@$(BIN)/python tools/release_check.py $(OPTIONS)

test-everywhere: $(VENV)/.ready-dev
	@$(BIN)/python tests/everywhere.py $(OPTIONS)

check: $(VENV)/.ready-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/codespell
	@$(BIN)/mypy

bench: $(VENV)/.ready-dev
	@$(BIN)/python benchmarks/speed.py --check

bench-networks: $(VENV)/.ready-dev
	@$(BIN)/python benchmarks/eegnet.py
	@$(BIN)/python benchmarks/backbones.py
	@$(BIN)/python benchmarks/training.py

docs: $(VENV)/.ready-docs
	@$(BIN)/sphinx-build -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

report-picture: $(VENV)/.ready-dev
	@$(BIN)/afor demo
	@$(BIN)/python docs/figures/report_page.py results/demo.db

DATA ?= data/physionet_mi
physionet: $(VENV)/.ready-bench
	@$(BIN)/afor run studies/physionet/lr-search.toml --root physionet_mi=$(DATA)
	@$(BIN)/afor run physionet --root physionet_mi=$(DATA)
	@$(BIN)/afor analyse matched physionet --study physionet --output studies/physionet/matched.toml
	@$(BIN)/afor run studies/physionet/matched.toml --root physionet_mi=$(DATA) --store results/physionet.db
	@$(BIN)/afor run physionet --root physionet_mi=$(DATA) --set training.hold_redundant=true \
		--set name=physionet-held
	@$(BIN)/python studies/physionet/results.py results docs/results/physionet
	@$(MAKE) --no-print-directory physionet-power
	@$(BIN)/afor analyse memory physionet --root physionet_mi=$(DATA) --steps 1000 \
		--output docs/results/physionet/memory.png > docs/results/physionet/memory.txt
	@$(BIN)/afor analyse shift physionet --root physionet_mi=$(DATA) --blocks 10 \
		--output docs/results/physionet/shift.png > docs/results/physionet/shift.txt

# What the study can decide, from the runs in the repository (docs/howto/power.md).
PILOT = docs/results/physionet
physionet-power: $(VENV)/.ready-bench
	@$(BIN)/python docs/figures/calibration.py $(PILOT)/runs.csv physionet > $(PILOT)/calibration.md
	@$(BIN)/afor power $(PILOT)/runs.csv --study physionet --family 1 -f markdown \
		--output $(PILOT)/power.png > $(PILOT)/power.md

batch-norm-study: $(VENV)/.ready-bench
	@$(BIN)/afor run studies/batch_norm/study.toml --root physionet_mi=$(DATA)
	@$(BIN)/afor table main results/batch-norm.db

shift-study: $(VENV)/.ready-bench
	@$(BIN)/afor run studies/shift/study.toml
	@$(BIN)/python studies/shift/figure.py results/shift.db docs/results/shift/gains
	@$(BIN)/afor run studies/shift/matched.toml
	@$(BIN)/python studies/shift/figure.py results/shift-matched.db docs/results/shift/matched

# When does beta2 matter? Learning rates are chosen on S001-S030, all is judged on S031-S060.
# Each target ends with the tables and figures of docs/results/when-beta2-matters.md.
EYES ?= data/physionet_mi
JOBS ?= 2
RUN = $(BIN)/afor run --root eyes=$(EYES) -j $(JOBS)
BETA2 = docs/results/when-beta2-matters
RESULTS = $(BIN)/python studies/beta2/results.py results $(BETA2)
bursts-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/clean-choose.toml
	@$(RUN) studies/beta2/bursts-choose.toml
	@$(RUN) studies/beta2/clean.toml
	@$(RUN) studies/beta2/bursts.toml
	@$(RUN) studies/beta2/bursts-confirm.toml
	@$(RUN) studies/beta2/clean-confirm.toml
	@$(RUN) studies/beta2/original.toml
	@for study in clean bursts; do for rate in 1e-3 3e-3; do \
		$(BIN)/python studies/beta2/hypergradient.py studies/beta2/$$study.toml $(EYES) $$rate || exit 1; \
	done; done > $(BETA2)/hypergradient.txt
	@$(RESULTS)

amplitude-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/amplitude-choose.toml
	@$(RUN) studies/beta2/amplitude.toml
	@$(RESULTS)

stream-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/stream-choose.toml
	@$(RUN) studies/beta2/stream.toml
	@$(RESULTS)

adaptation-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/adaptation-choose.toml
	@$(RUN) studies/beta2/adaptation.toml
	@$(RUN) studies/beta2/adaptation-confirm.toml
	@$(RESULTS)

awake-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/awake-choose.toml
	@$(BIN)/python studies/beta2/rates.py results/awake-choose.db studies/beta2/awake.toml
	@$(RUN) studies/beta2/awake.toml
	@$(RUN) studies/beta2/awake-confirm.toml
	@$(BIN)/python studies/beta2/changes.py $(EYES) $(BETA2)
	@$(RESULTS)

variants-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/variants.toml
	@$(RUN) studies/beta2/step-size.toml
	@$(RESULTS)
rivals-study: $(VENV)/.ready-bench
	@$(RUN) studies/beta2/rivals.toml

# The paper's comparison on open data. DATA holds the folders physionet_eyes, sam40 and imagery22.
# The analyses of the paper are made on the task eyes and share its store.
OPEN = studies/open
ON_EYES = --root eyes=$(DATA)/physionet_eyes --store results/open-eyes.db
open-study: $(VENV)/.ready-bench
	@$(BIN)/afor run $(OPEN)/rates.toml --root eyes=$(DATA)/physionet_eyes --root stress=$(DATA)/sam40 \
		--root imagery=$(DATA)/imagery22
	@for study in eyes ablation sensitivity convergence unnormalized; do \
		$(BIN)/afor run $(OPEN)/$$study.toml $(ON_EYES) || exit 1; \
	done
	@for network in eegnet acrnn nsal_dgat hslt; do \
		$(BIN)/afor analyse matched results/open-eyes.db --study open-eyes --backbone $${network}_authors \
			--output $(OPEN)/matched-$$network.toml && \
		$(BIN)/afor run $(OPEN)/matched-$$network.toml $(ON_EYES) --optimizer afor --optimizer adamw_mean \
			--optimizer adamw_mean_per_tensor --set name=open-matched-$$network || exit 1; \
	done
	@for plane in random pca "filter --span 1"; do \
		$(BIN)/afor analyse landscape $(OPEN)/eyes.toml --root eyes=$(DATA)/physionet_eyes \
			--backbone eegnet_authors --directions $$plane \
			--output docs/results/open/landscape-$${plane%% *}.json || exit 1; \
	done
	@$(BIN)/afor run $(OPEN)/stress.toml --root stress=$(DATA)/sam40
	@$(BIN)/afor run $(OPEN)/imagery.toml --root imagery=$(DATA)/imagery22
	@$(BIN)/python $(OPEN)/results.py results docs/results/open

clean:
	@rm -rf $(VENV) build dist docs/_build src/*.egg-info src/afor/native/*.so src/afor/bench/models/native/*.so
