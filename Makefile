# SPDX-FileCopyrightText: The Ullage Authors
# SPDX-License-Identifier: Apache-2.0
SHELL := /bin/sh
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CLUSTER ?= local
KEEP ?=
FAST_FLAGS ?= -n 3 --dist worksteal
# tests of test-fast, without those that need more than this machine
FAST_MARKS := not e2e and not gpu and not scale and not neighbours and not slow
# what needs a cluster or a GPU is not even read
ELSEWHERE := $(addprefix --ignore tests/,e2e gpu neighbours)
# random events of the long stress tests, and random admissions
STRESS_EVENTS ?= 100000
# random strokes against members of a job in tiers, two seconds each
STROKES ?= 20
# wild objects of the fuzz suite
WILD_OBJECTS ?= 200000
# set: rounds of turns in which the time of real jobs is measured; 50 take a quarter of an hour
E2E_ROUNDS ?=
# properties that test-stress tries on more examples than test-fast
MANY_EXAMPLES := $(shell grep -rlE "^from fakes.examples import" tests --include="test_*.py" 2>/dev/null)
# what tries at length may take long on a busy machine
PATIENT := --timeout 1800
# files that test-fast leaves to another target of the same run
FAST_SKIPS ?=
# set: also what mostly waits
E2E_LONG ?=
# end-to-end files that run side by side, each worker with a cluster of its own
E2E_WORKERS ?= 3
# words that choose mutants: a subject, a file, words of a rule
ONLY ?=
# what to do with the sample of mutants, and how: python -m mutants.sample --help
SAMPLE ?=
ALL_PY := operator deviceplugin runtime bench demo docs/generate examples release tests
# Hundreds of test modules, and some hundred processes that tests start, are read compiled.
test-fast test-stress explore: export PYTHONDONTWRITEBYTECODE :=

.PHONY: help
help: ## show this help
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(VENV)/.ready: requirements/dev.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "python3 (3.11 or newer) not found: apt-get install -y python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
	@echo "... make the Python environment (about 60 s)"
	@$(PYTHON) -m venv $(VENV) || { echo "install: apt-get install -y python3-venv" >&2; exit 1; }
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

.PHONY: demo
demo: $(VENV)/.ready ## a real cluster, no GPU, no Docker: install, run the examples, explain (CLUSTER=kind, KEEP=1, PICTURE=file.svg)
	@$(BIN)/python -m demo --cluster $(CLUSTER) $(if $(KEEP),--keep) $(if $(PICTURE),--picture $(PICTURE))

.PHONY: dev
dev: $(VENV)/.ready ## kopf run --dev with this tree's operator, in place of that of the cluster of make demo KEEP=1 (CLUSTER=kind)
	@$(BIN)/python -m demo.dev --cluster $(CLUSTER)

# continuous integration has 90 minutes: a fifth of what make test-stress tries by itself
test: STRESS_EVENTS = 20000
test: WILD_OBJECTS = 40000
test: STROKES = 10
test: FAST_SKIPS = $(MANY_EXAMPLES)
.PHONY: test
test: lint test-fast test-stress test-e2e ## everything: lint, fast tests, stress tests, then end to end on a real cluster
	@echo "all tests passed"

.PHONY: test-fast
test-fast: $(VENV)/.ready ## unit, property, contract and chart tests that are quick; no cluster
	@localcluster/run build --tools helm >/dev/null
	@$(BIN)/python -m pytest $(FAST_FLAGS) -m "$(FAST_MARKS)" $(ELSEWHERE) $(addprefix --ignore ,$(FAST_SKIPS))
	@cd localcluster && GOFLAGS=-buildvcs=false go test .

.PHONY: test-stress
test-stress: $(VENV)/.ready ## slow tests, and the long stress tests in full: 100,000 random events, 100,000 admissions, 200,000 wild objects, 1,000 restarts
	@ULLAGE_STRESS_EVENTS=$(STRESS_EVENTS) ULLAGE_ADMISSIONS=$(STRESS_EVENTS) ULLAGE_WILD_OBJECTS=$(WILD_OBJECTS) \
	  $(BIN)/python -m pytest $(FAST_FLAGS) $(PATIENT) -m slow $(ELSEWHERE)
	@ULLAGE_STROKES=$(STROKES) $(BIN)/python -m pytest -p no:xdist tests/unit/run/test_random_strokes_lose_no_state.py
	@ULLAGE_EXAMPLES=many $(BIN)/python -m pytest $(FAST_FLAGS) $(PATIENT) $(MANY_EXAMPLES)

.PHONY: replay
replay: $(VENV)/.ready ## decide again on recorded snapshots: every plan must be equal, byte for byte
	@$(BIN)/python -m pytest $(FAST_FLAGS) tests/replay

.PHONY: explore
explore: $(VENV)/.ready ## property tests on new random examples
	@ULLAGE_EXAMPLES=explore $(BIN)/python -m pytest $(FAST_FLAGS) -m hypothesis $(ELSEWHERE)
	@ULLAGE_EXAMPLES=explore ULLAGE_WILD_OBJECTS=$(WILD_OBJECTS) $(BIN)/python -m pytest $(FAST_FLAGS) \
	  tests/property/test_wild_objects_harm_only_themselves.py \
	  tests/property/node/test_wild_*.py

.PHONY: test-e2e
test-e2e: $(VENV)/.ready ## end to end on two real kubelets (root, Linux)
	@$(BIN)/python -m demo.start
	@localcluster/run build --tools kwok >/dev/null # the networks of the tests' clusters lead nowhere
	@ULLAGE_E2E_ROUNDS=$(E2E_ROUNDS) ULLAGE_E2E_LONG=$(E2E_LONG) $(BIN)/python -m pytest -m e2e \
	  -n $(E2E_WORKERS) --dist loadfile --no-loadscope-reorder --durations 80 --durations-min 5 tests/e2e tests/unit/bench_gpu

SMOKE := test_jobs_run_and_finish.py test_shares_are_enforced.py test_refusals_say_why.py
.PHONY: test-smoke
test-smoke: $(VENV)/.ready ## a few minutes of the end-to-end tests: jobs run, shares hold, refusals say why
	@$(BIN)/python -m pytest -m e2e -p no:xdist $(addprefix tests/e2e/,$(SMOKE))

SKEW := $(SMOKE) test_services_serve_without_a_gap.py test_elastic_gangs_change_their_size.py
.PHONY: test-skew
test-skew: $(VENV)/.ready ## the smoke tests and more on an older Kubernetes (KUBERNETES=1.34), compiled the first time
	@ULLAGE_KUBERNETES=$(or $(KUBERNETES),1.34) $(BIN)/python -m pytest -m e2e -p no:xdist $(addprefix tests/e2e/,$(SKEW))

.PHONY: mutants
mutants: $(VENV)/.ready ## breaks one rule at a time: a test must fail (ONLY=turns, ONLY=plan.py: some of them)
	@PYTHONPATH=tests $(BIN)/python -m mutants $(ONLY)

.PHONY: mutants-sample
mutants-sample: $(VENV)/.ready ## how many small random changes of operator, node agent and runtime fail a test (SAMPLE="--seed 3 --jobs 4"; root: signals stay in a namespace)
	@PYTHONPATH=tests $(BIN)/python -m mutants.sample $(SAMPLE)

.PHONY: test-neighbours
test-neighbours: $(VENV)/.ready ## beside real Karpenter, Kueue, JobSet, LeaderWorkerSet, Trainer, Prometheus, Katib's services, krew and an image registry, compiled from their Go modules
	@$(BIN)/python -m pytest -m neighbours -p no:xdist tests/neighbours

.PHONY: house
house: $(VENV)/.ready ## figures of the code that may only fall: today, ceiling, goal
	@PYTHONPATH=tests $(BIN)/python -m ceilings

.PHONY: lint
lint: $(VENV)/.ready ## format, style, types, import rules, generated files
	@$(BIN)/ruff format --check $(ALL_PY)
	@$(BIN)/ruff check $(ALL_PY)
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m docs.generate.crds --check
	@$(BIN)/python -m docs.generate --check
	@cd localcluster && test -z "$$(gofmt -l *.go)" && GOFLAGS=-buildvcs=false go vet .

.PHONY: format
format: $(VENV)/.ready ## rewrite the code in the house's format
	@$(BIN)/ruff format $(ALL_PY)
	@$(BIN)/ruff check --fix $(ALL_PY)

.PHONY: generate
generate: $(VENV)/.ready ## CRDs, references and roles from the code
	@$(BIN)/python -m docs.generate.crds
	@$(BIN)/python -m docs.generate

.PHONY: docs
docs: $(VENV)/.ready ## the documentation as a site, in build/site
	@$(BIN)/python -m venv build/docs-venv
	@build/docs-venv/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.txt
	@NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --quiet
	@echo "build/site/index.html"

.PHONY: requirements
requirements: $(VENV)/.ready ## pin all dependencies, with hashes and without addresses (needs uv)
	@for extra in operator node router cli examples docs; do \
	  uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	    --no-emit-find-links --no-header --no-annotate --extra $$extra pyproject.toml -o requirements/$$extra.txt; done
	@uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	  --no-emit-find-links --no-header --no-annotate --extra dev pyproject.toml -o requirements/dev.txt

.PHONY: cluster
cluster: ## a local cluster of two nodes, without Ullage
	@localcluster/run up --nodes 2 --install-deps

.PHONY: images
images: $(VENV)/.ready ## the three container images as OCI archives
	@$(BIN)/python -m demo.images

.PHONY: wheels
wheels: $(VENV)/.ready ## what the Dockerfile installs, checked by hash, into build/wheels (PLATFORM=amd64 or arm64)
	@$(BIN)/python -m demo.images --wheels $(if $(PLATFORM),--platform $(PLATFORM))

.PHONY: release
release: $(VENV)/.ready ## images, bills of materials, charts, wheel, kubectl plugin and checksums, in build/release (REGISTRY, PLATFORM, BASE, PLUGIN_URL, KEY)
	@$(BIN)/python -m release $(if $(REGISTRY),--registry $(REGISTRY)) $(if $(PLATFORM),--platform $(PLATFORM)) $(if $(BASE),--base '$(BASE)') $(if $(PLUGIN_URL),--plugin-url '$(PLUGIN_URL)') $(if $(KEY),--key '$(KEY)')

.PHONY: bench bench-step bench-decide bench-fill
bench: bench-step bench-decide bench-fill ## every benchmark; figures go to build/bench
bench-step: $(VENV)/.ready ## cost of one ullage_run.step()
	@$(BIN)/python -m bench.step
bench-decide: $(VENV)/.ready ## decision cycle at 1,000 nodes and 10,000 jobs (POLICY=MaxMinFairness: in turns; EQUAL=1000: cycles decided twice)
	@$(BIN)/python -m bench.decide $(if $(POLICY),--policy $(POLICY)) $(if $(EQUAL),--equal $(EQUAL))
bench-fill: $(VENV)/.ready ## 4,000 jobs on 500 KWOK nodes beside the pipeline's own limit
	@$(BIN)/python -m bench.fill

.PHONY: soak
soak: $(VENV)/.ready ## memory of the operator under hours of churn and faults (MINUTES; KWOK)
	@$(BIN)/python -u -m bench.soak --minutes $(or $(MINUTES),120)

.PHONY: bench-hostile bench-kopf bench-kopf-kills bench-faults
bench-hostile: $(VENV)/.ready ## hostile tenants: fuzz, largest specs, objects beside work, API server restarts, soak (OBJECTS, SOAK minutes, STEP, SEED; root, Linux)
	@$(BIN)/python -u -m bench.hostile --objects $(or $(OBJECTS),200000) --soak $(or $(SOAK),15) --seed $(or $(SEED),1) $(foreach step,$(STEP),--step $(step))
bench-kopf: $(VENV)/.ready ## kopf beside 500 services: how soon it is there and gone, its writes, whom a storm of edits delays (BEFORE=DIR: a fill beside an earlier checkout)
	@$(BIN)/python -m bench.kopf $(if $(BEFORE),--before $(BEFORE))
bench-kopf-kills: $(VENV)/.ready ## the operator is killed while objects end in order (KILLS; root, Linux)
	@$(BIN)/python -u -m bench.kopf_kills --kills $(or $(KILLS),100)
bench-faults: $(VENV)/.ready ## random faults under churn on the local cluster (MINUTES, SEED; root, Linux)
	@$(BIN)/python -u -m bench.faults --minutes $(or $(MINUTES),20) --seed $(or $(SEED),1)

.PHONY: clean
clean: ## take the local cluster down and remove what was built
	@localcluster/run down
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis

.PHONY: bench-node-decision bench-twin
bench-node-decision: $(VENV)/.ready ## one admission decision: 8 tenants, 10 shares
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.node_decision
bench-twin: $(VENV)/.ready ## the operator's own cycle on twelve devices in virtual time, sharing rules side by side (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.twin $(if $(DATA),--data $(DATA))

.PHONY: bench-learner
bench-learner: $(VENV)/.ready ## one update and one fit of the model at the most rows
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.learner

.PHONY: bench-guard
bench-guard: $(VENV)/.ready ## injected interference: how soon the neighbour stands still (root, Linux)
	@$(BIN)/python -m bench.guard

.PHONY: bench-agent
bench: bench-agent
bench-agent: $(VENV)/.ready ## CPU and memory of agent and guard beside 32 slices, idle and at 1,000 steps/s, and beside busy tenants; start to first device
	@$(BIN)/python -m bench.agent

.PHONY: bench-scale
bench-scale: $(VENV)/.ready ## decisions and memory from 1,000 nodes to 5,000 nodes and 50,000 jobs, and beside 20,000 adopted pods (NODES, PICTURE=file.svg)
	@$(BIN)/python -m bench.scale $(if $(NODES),--nodes $(NODES))
	@$(if $(PICTURE),$(BIN)/python -m bench.scale_picture $(PICTURE))

.PHONY: bench-tracing-hook
bench-tracing-hook: $(VENV)/.ready ## cost of the step hook while no trace is ordered (TORCH_PYTHON=interpreter with torch)
	@$(BIN)/python -m bench.tracing_hook

.PHONY: bench-node-status
bench: bench-node-status
bench-node-status: $(VENV)/.ready ## bytes that a node's heartbeat makes the API server store
	@$(BIN)/python -m bench.node_status

.PHONY: bench-efficiency
bench: bench-efficiency
bench-efficiency: $(VENV)/.ready ## findings on drawn counter series with known antipatterns, and the report of 10,000 jobs (ARGS="--draws 10 --seed 1")
	@$(BIN)/python -m bench.efficiency $(ARGS)

.PHONY: bench-stragglers
bench-stragglers: $(VENV)/.ready ## a slow rank gets smaller batches: steps, weights, kills; slow ranks of public traces (TORCH_PYTHON=interpreter with torch, root, ARGS="--rounds 1 --kills 3")
	@$(BIN)/python -m bench.stragglers $(ARGS)

.PHONY: bench-admission
bench: bench-admission
SPLITS ?= 200
bench-admission: $(VENV)/.ready ## predicted slowdowns and kept admissions on public tables (DATA=folder, SPLITS=random splits of a replay, PICTURE=file.svg)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.admission --splits $(SPLITS) $(if $(DATA),--data $(DATA))
	@$(if $(PICTURE),$(BIN)/python -m bench.admission_picture $(PICTURE))

# what the picture needs is no part of the development environment
$(VENV)/.plots: $(VENV)/.ready bench/plots.txt
	@$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r bench/plots.txt
	@touch $@

.PHONY: bench-mixed
bench-mixed: $(VENV)/.plots ## mixed arrivals on the local cluster, three ways of sharing (MINUTES, HISTORY, SEED, PICTURE; root)
	@$(BIN)/python -m bench.mixed --minutes $(or $(MINUTES),10) --history $(or $(HISTORY),6) --seed $(or $(SEED),1) $(if $(PICTURE),--picture $(PICTURE)) $(if $(AGAIN),--again)

.PHONY: test-gpu bench-gpu-dry
test-gpu: $(VENV)/.ready ## conformance on a real GPU with MPS; says so where there is none
	@$(BIN)/python -m pytest -m gpu -p no:xdist tests/gpu; code=$$?; test $$code -eq 5 || exit $$code
bench-gpu-dry: $(VENV)/.ready ## the GPU measurements of full size against the fakes: no GPU is used
	@$(BIN)/python -m bench.gpu r1 --dry --minutes 1 --out build/bench/gpu-dry
	@$(BIN)/python -m bench.gpu analyse --out build/bench/gpu-dry

.PHONY: bench-devicechoice
bench: bench-devicechoice
bench-devicechoice: $(VENV)/.ready ## step times and choices where nothing ran, on public profiles and tables (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.devicechoice $(if $(DATA),--data $(DATA))

.PHONY: bench-plans
bench: bench-plans
bench-plans: $(VENV)/.ready ## predicted steps of transformers beside published ones (CALCULON=checkout, CALCULON_PYTHON=interpreter with pandas: beside it, too)
	@$(BIN)/python -m bench.plans $(if $(CALCULON),--calculon $(CALCULON)) $(if $(CALCULON_PYTHON),--calculon-python $(CALCULON_PYTHON))

.PHONY: bench-policy
bench: bench-policy
bench-policy: $(VENV)/.ready ## dividing thousands of jobs among types; estimates of speeds in company
	@$(BIN)/python -m bench.policy

.PHONY: bench-lies
bench: bench-lies
bench-lies: $(VENV)/.ready ## what a job gains by lying about its speeds, by objective
	@$(BIN)/python -m bench.lies

.PHONY: bench-simulate bench-traces
bench: bench-simulate
bench-simulate: $(VENV)/.ready ## traces: published figures, own rounds, cost of restarts, jobs a second (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.simulate $(if $(DATA),--data $(DATA))
bench-traces: $(VENV)/.ready ## a public trace against a queue; work that preemption loses (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.traces $(if $(DATA),--data $(DATA))

.PHONY: bench-capacity
bench: bench-capacity
bench-capacity: $(VENV)/.ready ## spot capacity: deadlines, cost per work, hazards and prices on public traces (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.capacity $(if $(DATA),--data $(DATA))

.PHONY: bench-batching
bench-batching: $(VENV)/.ready ## batching by distribution beside EDF, FIFO and static sizes in virtual time, and the router in real time (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.batching $(if $(DATA),--data $(DATA))

.PHONY: bench-tracing
bench-tracing: $(VENV)/.ready ## breakdowns of step traces beside HolisticTraceAnalysis: figures, speed, memory; hostile traces; with TORCH_PYTHON also the hook and the live ones (DATA=tests/data of its repository)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.tracing $(if $(DATA),--data $(DATA))
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.tracing_hostile
	@$(if $(TORCH_PYTHON),$(MAKE) bench-tracing-hook bench-tracing-live)

.PHONY: bench-tracing-live
bench-tracing-live: $(VENV)/.ready ## from a ProfileRequest to its result on the local cluster, beside other jobs; then kills during traces (TORCH_PYTHON=interpreter with torch; REQUESTS, KILLS; root, Linux)
	@$(BIN)/python -m bench.tracing_cluster --requests $(or $(REQUESTS),20)
	@$(BIN)/python -m bench.tracing_kills --kills $(or $(KILLS),50)

.PHONY: bench-dataio
bench-dataio: $(VENV)/.ready ## starvation and limits on a loop device, and tuned torch loaders (root, Linux; TORCH_PYTHON=interpreter with torch)
	@$(BIN)/python -m bench.dataio

.PHONY: bench-autoscale
bench-autoscale: $(VENV)/.ready ## replicas by objective beside a tuned HPA and a clairvoyant, on public traces in virtual time (DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.autoscale $(if $(DATA),--data $(DATA))

.PHONY: bench-wake
bench-wake: $(VENV)/.ready ## first answer of a service that slept beside the start of a plain pod, on the local cluster (ROUNDS; root, Linux)
	@$(BIN)/python -m bench.wake --rounds $(or $(ROUNDS),5)

.PHONY: bench-service-faults
bench-service-faults: $(VENV)/.ready ## what becomes of requests while processes and machines of a service fail, on the local cluster (MINUTES=30, SEED; root, Linux)
	@$(BIN)/python -m bench.service_faults --minutes $(or $(MINUTES),30) --seed $(or $(SEED),1)

.PHONY: bench-lanes
bench-lanes: $(VENV)/.ready ## lanes in virtual time: safety under random events, residents, completion times, fairness; then what turns of real processes cost, and who is killed for memory without lanes (DATA=folder, EVENTS)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.lanes $(if $(DATA),--data $(DATA)) $(if $(EVENTS),--events $(EVENTS))
	@$(BIN)/python -m bench.lanes_switch
	@$(BIN)/python -m bench.lanes_memory

.PHONY: bench-lanes-cluster
bench-lanes-cluster: $(VENV)/.ready ## twenty small trainings in lanes beside time slicing by the kernel, on the local cluster (STEPS=600; root, Linux, about 8 min)
	@$(BIN)/python -m bench.lanes_cluster $(if $(STEPS),--steps $(STEPS))

.PHONY: bench-tuning
bench-tuning: $(VENV)/.ready ## trials of a tuning job beside one device a trial and the bounds, in virtual time (DATA=folder, SEEDS)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.tuning $(if $(DATA),--data $(DATA)) $(if $(SEEDS),--seeds $(SEEDS))

.PHONY: bench-tuning-cluster
bench-tuning-cluster: $(VENV)/.ready ## trials that divide two devices beside fixed widths and Ray Tune, on the local cluster (EPOCHS of the longest one; root, Linux, about 25 min)
	@$(BIN)/python -m bench.tuning_cluster $(if $(EPOCHS),--epochs $(EPOCHS))

.PHONY: bench-tuning-kills
bench-tuning-kills: $(VENV)/.ready ## a hundred kills while searches run on the local cluster, each result counts once (KILLS, SEED; root, Linux, about 15 min)
	@$(BIN)/python -m bench.tuning_kills $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED))

.PHONY: bench-router
bench-router: $(VENV)/.ready ## what the router adds beside nginx, requests a core, goodput beside BentoML, Ray Serve and static sizes (NGINX=program)
	@$(BIN)/python -m bench.router $(if $(NGINX),--nginx $(NGINX))

.PHONY: bench-generative
bench-generative: $(VENV)/.ready ## first tokens in time of generative servers, behind the router and asked in turn
	@PYTHONPATH=examples $(BIN)/python -m bench.generative

.PHONY: bench-adopt
bench-adopt: $(VENV)/.ready ## a first install by the commands that the docs print, kinds that share, latency of pods without a label (root, Linux)
	@$(BIN)/python -m bench.adopt

.PHONY: bench-spot-cluster
bench-spot-cluster: $(VENV)/.ready ## a replayed preemption trace against an elastic gang on the local cluster (root, Linux, about 10 min; DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.spot_cluster $(if $(DATA),--data $(DATA)) $(if $(MINUTES),--minutes $(MINUTES))

.PHONY: bench-tiers
bench-tiers: $(VENV)/.ready ## losses with a state store and with checkpoints, on local processes (about 25 min; DATA=folder)
	@OPENBLAS_NUM_THREADS=1 $(BIN)/python -m bench.tiers $(if $(DATA),--data $(DATA))
