# cohortflow: `make demo` and `make test` work on a fresh machine with Python 3.11+ and make.
PYTHON ?= python3
BIN := .venv/bin
DEMO := data/demo

.PHONY: help install demo test lint train oracle oracle-tools oracle-spliceai bench bench-serving bench-models bench-calls clean

help:
	@echo "make install   .venv with everything in it"
	@echo "make demo      a small simulated cohort, scored: prints where the results are"
	@echo "make test      the whole test suite"
	@echo "make lint      ruff, mypy, import-linter"
	@echo "make oracle    comparisons with bcftools, samtools, freebayes and jellyfish (make oracle-tools installs them on Debian)"
	@echo "make oracle-models  adds every published model from the package index and checks it against its own tool"
	@echo "make oracle-spliceai  pipeline spliceai beside its tool (as bench-models, and VARIANTS=VCF FLAGS='-D 50 -M 1')"
	@echo "make bench     speed beside the peers, as ratios"
	@echo "make bench-serving  the model server alone (TRITON_VENV=FOLDER: beside NVIDIA Triton)"
	@echo "make bench-models  pipeline spliceai beside its tool (REFERENCE=FASTA GENES=TABLE MODELS=FOLDER ORACLE=spliceai)"
	@echo "make bench-calls  how well variants are called beside bcftools, freebayes and a plain rule (PICTURE=FILE.svg)"
	@echo "make train     trains the shipped models again"

install: .venv/installed

# The torch wheel first and by exact version: a CPU build where one is at hand, else the index's build.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: install
	$(BIN)/python -m tasks.simulation.cohort $(DEMO) --seed 1
	$(BIN)/cohortflow score $(DEMO)/sheet.csv --reference $(DEMO)/reference.fa.gz --output $(DEMO)/results --overwrite

test: install
	$(BIN)/python -m pytest

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

train: install
	$(BIN)/cohortflow train --output data/models --seed 1

oracle-tools:
	for tool in bcftools samtools freebayes tabix jellyfish; do command -v $$tool >/dev/null || missing=1; done; \
	test -z "$$missing" || { apt-get update -qq && apt-get install -y -qq bcftools samtools freebayes tabix jellyfish; }

oracle: install
	for script in $(filter-out infra/oracle_spliceai.py infra/oracle_models.py,$(wildcard infra/oracle_*.py)); do $(BIN)/python $$script || exit 1; done

oracle-models: install
	$(BIN)/python infra/oracle_models.py

oracle-spliceai: install
	$(BIN)/python infra/oracle_spliceai.py $(REFERENCE) $(GENES) $(MODELS) $(VARIANTS) --oracle $(ORACLE) $(FLAGS)

bench: install
	for script in $(filter-out infra/bench_calls.py infra/bench_models.py,$(wildcard infra/bench_*.py)); do $(BIN)/python $$script || exit 1; done

bench-serving: install
	$(BIN)/python infra/bench_serving.py

bench-models: install
	$(BIN)/python infra/bench_models.py $(REFERENCE) $(GENES) $(MODELS) $(if $(ORACLE),--oracle $(ORACLE))

bench-calls: install
	$(BIN)/python infra/bench_calls.py $(if $(PICTURE),--picture $(PICTURE))

clean:
	rm -rf .venv build data/demo data/bench .mypy_cache .ruff_cache .pytest_cache
