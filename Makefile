# Every target sets itself up; nothing but make and a Python 3.11, 3.12 or 3.13 needs to be there.
# What more a target needs stands beside it in `make help`.

VENV := .venv
BIN  := $(VENV)/bin
PY   := $(BIN)/python
PIP  := $(PY) -m pip --quiet --disable-pip-version-check --no-input
RUNTIME := $(VENV)/.runtime
NATIVE  := hatch_build.py $(wildcard policies/partita_policies/native/*.[ch])
DEV     := $(VENV)/.dev
TRAINING := $(VENV)/.training
COMPILER := $(VENV)/.compiler
GO      := $(VENV)/.go
KUBECTL := $(VENV)/.kubectl
UV      := .cache/uv/bin/uv
BUILD   := PYTHONPATH=tests $(PY) -m apiserver.build
UV_VERSION := 0.13.9

# Tests without processes, servers or training.
PURE := tests/claims tests/embedded tests/gitops/test_states.py tests/jobs tests/kube tests/models \
        tests/nodes/test_gpu.py tests/partitions tests/pods tests/policies tests/scheduling \
        tests/simulator tests/store

# Where Python may not keep what it compiled, each of the many programs that tests and benchmarks
# start compiles for seconds what the image holds compiled.
unexport PYTHONDONTWRITEBYTECODE

# Go and kubectl are the machine's own, or else those in $(VENV).
export PATH := $(PATH):$(CURDIR)/$(BIN)

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo check test test-all coverage test-training test-apiserver test-cluster test-terminations test-alerts test-chaos test-gitops test-kueue test-release test-browser test-gpu bench-operator bench-scale bench-peers bench-agent bench-policies bench-starts picture picture-console lint format crds schemas chart image release docs reference protos lock hooks clean

help: ## Show this
	@echo 'Partita: declarative GPU sharing for Kubernetes'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo 'Start with `make demo`; it needs no cluster, no GPU and no Go.'
	@echo 'ARGS is passed on:   make demo ARGS=--serve'
	@echo '                     make test ARGS="tests/models --no-cov -x"'
	@echo 'PYTHON names another Python, for the first call: make demo PYTHON=/path/to/python3.12'

demo: $(RUNTIME) ## Watch jobs share simulated GPUs through the real operator, within a minute
	@$(BIN)/partita demo $(ARGS)

check: $(DEV) ## Run the tests of pure logic, in less than a minute: the inner loop
	@$(PY) -m pytest --numprocesses 2 --dist worksteal --hypothesis-profile quick $(PURE) $(ARGS)

test: $(DEV) ## Run all tests that need no cluster
	@echo 'Four processes read all tests first, for up to a minute. Then each dot is a test that passed.'
	@$(PY) -m pytest --numprocesses 4 --dist worksteal $(ARGS)

test-all: ## Run every tier whole, with coverage, on Debian as root (hours): once for each issue
	@bash .ci/run all

coverage: $(DEV) ## Run the same tests as `make test` and measure what they cover (at least 90 %)
	@$(PY) -m pytest --cov --hypothesis-profile thorough --numprocesses 4 --dist worksteal $(ARGS)

test-training: $(TRAINING) ## Run the tests of the training of policies, which need torch (5 GB on disk)
	@$(PY) -m pytest --training tests/training $(ARGS)

test-apiserver: $(DEV) $(GO) ## Run what talks to an API server on a real one, with the rights of manifests/
	@$(BUILD) apiserver manifests
	@$(PY) -m pytest --server apiserver --timeout 300 --numprocesses 2 --dist worksteal $(ARGS)

test-cluster: $(DEV) $(GO) ## Run jobs on a real kubelet and containerd, with fake GPUs (as root; needs Debian's runc)
	@$(BUILD) apiserver node
	@$(PY) -m pytest --cluster tests/cluster $(ARGS)

test-terminations: $(DEV) ## End 1,000 jobs at random while they use a fake GPU (8 minutes; needs gcc)
	@$(PY) -m pytest --capture no tests/agent/whole/test_terminations.py --terminations 1000 $(ARGS)

test-alerts: $(DEV) $(GO) ## Run the tests of the Prometheus rules with promtool
	@$(BUILD) promtool
	@$(PY) -m pytest --promtool tests/metrics/alerts $(ARGS)

test-chaos: $(DEV) $(GO) ## Kill and break everything at random, and judge what came of it (ARGS="--kills 200 --faults 1000" takes half an hour)
	@$(BUILD) apiserver
	@PYTHONPATH=tests $(PY) -m chaos $(ARGS)

test-release: $(DEV) $(COMPILER) $(KUBECTL) $(GO) ## Build a release and install it into an empty environment (as root; needs the network, buildah and debootstrap)
	@$(BUILD) cosign
	@$(PY) -m pytest --release tests/release $(ARGS)

test-gitops: $(DEV) $(GO) ## Bring Partita from a Git repository by a real Argo CD (as root, or where users may make namespaces; needs git and Debian's redis-server)
	@$(BUILD) apiserver manifests argocd
	@$(PY) -m pytest --gitops tests/gitops/argocd $(ARGS)

test-kueue: $(DEV) $(GO) ## Run beside kube-scheduler and a real Kueue: gates, quotas in GiB, groups, 200 random submissions (ARGS="--submissions 50 --seed 7")
	@$(BUILD) apiserver manifests kueue
	@$(PY) -m pytest --server apiserver --kueue tests/kube_scheduler/kueue $(ARGS)

test-browser: $(DEV) ## Run the tests of the console's page in Chromium (needs Debian's chromium)
	@$(PY) -m pytest --browser tests/console/browser $(ARGS)

GPU_PYTHON ?= python3

test-gpu: ## Try MPS, limits and predictions on a real NVIDIA GPU (needs its driver, pynvml and, for some, torch in python3; no .venv)
	@PYTHONPATH=operator:policies:tests $(GPU_PYTHON) -m acceptance $(ARGS)

bench-operator: $(DEV) ## Measure the operator: latencies, start, memory
	@PYTHONPATH=tests $(PY) -m bench.operator $(ARGS)

bench-scale: $(DEV) $(GO) ## Measure 15,000 jobs on a real API server, as Kueue's benchmark does (ARGS=--help)
	@$(BUILD) apiserver
	@PYTHONPATH=tests $(PY) -m bench.scale $(ARGS)

bench-peers: $(DEV) $(GO) ## Compare with Kueue and with Kubernetes alone: equal work, one control plane, one run (ARGS=--help)
	@$(BUILD) apiserver manifests kueue
	@PYTHONPATH=tests $(PY) -m bench.peers $(ARGS)

bench-agent: $(DEV) ## Measure what the agent costs, with 16 claims on a fake GPU (needs gcc)
	@PYTHONPATH=tests $(PY) -m bench.agent $(ARGS)

bench-policies: $(TRAINING) ## Compare the policies; writes docs/policies.md and docs/policies/results.csv (about an hour; ARGS="--only times" for a part)
	@OMP_NUM_THREADS=1 PYTHONPATH=tests $(PY) -m bench.policies $(ARGS)

bench-starts: $(DEV) ## Measure how well expected starts come true (half an hour; ARGS=--help)
	@PYTHONPATH=tests $(PY) -m bench.start_times $(ARGS)

picture: $(DEV) ## Draw README's picture from a run of the demo
	@$(PY) tools/picture.py

picture-console: $(DEV) ## Draw README's pictures of the console from a run of the demo (needs Debian's chromium)
	@$(PY) tools/picture.py console

lint: $(DEV) ## Check style, types, imports and the repository's rules; writes nothing
	@failed=0; check() { echo "- $$*"; "$$@" || failed=1; }; \
	check $(BIN)/ruff check --quiet; \
	check $(BIN)/ruff format --check --quiet; \
	check $(BIN)/mypy; \
	check $(BIN)/mypy tools tests/support; \
	check $(BIN)/lint-imports; \
	check $(PY) tools/repository.py; \
	exit $$failed

format: $(DEV) ## Fix what ruff can fix
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

crds: $(RUNTIME) ## Generate crds/ from the models
	@$(PY) tools/crds.py

schemas: $(RUNTIME) $(GO) ## Take the schemas of Kubernetes' own kinds from the source code of the Kubernetes of the tests
	@$(PY) tools/builtin_schemas.py

chart: $(RUNTIME) $(KUBECTL) ## Make the Helm chart of manifests/ in build/chart/partita
	@kubectl kustomize manifests/helm | $(PY) tools/chart.py build/chart/partita

image: ## Build Partita's image, and say how a cluster gets it (needs docker, podman or buildah; IMAGE=name:tag)
	@sh tools/image.sh $(ARGS)

release: $(DEV) $(COMPILER) $(KUBECTL) ## Build wheels, sdist, SBOM, kubectl plug-in, chart, image in dist/ (ARGS="--url URL --key FILE" for krew and signatures)
	@$(PY) tools/release.py dist $(ARGS)

docs: $(DEV) ## Build the documentation site in build/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(RUNTIME) ## Generate docs/reference/ from the models and from --help
	@$(PY) tools/reference.py

protos: $(DEV) ## Generate the messages between the agent and kubelet
	@$(PY) -m grpc_tools.protoc -Ioperator --python_out=operator --pyi_out=operator operator/partita/agent/kubelet/kubelet.proto

lock: $(UV) ## Resolve requirements/ anew from pyproject.toml (ARGS=--upgrade takes the newest versions)
	@$(PY) tools/lock.py $(UV) $(ARGS)

hooks: $(DEV) ## Run the checks before each git commit, from now on
	@$(BIN)/pre-commit install

clean: ## Remove all that make has made
	rm -rf $(VENV) .cache build dist .coverage .coverage.* .hypothesis .import_linter_cache
	rm -rf .mypy_cache .pytest_cache .ruff_cache
	find operator policies tests tools -name __pycache__ -prune -exec rm -rf {} +

# Stamps: what they stand for is installed again only when its inputs change.
$(PY):
	@sh tools/venv.sh $(VENV)

$(RUNTIME): requirements/base.txt pyproject.toml $(NATIVE) | $(PY)
	@echo 'Installing what Partita needs into $(VENV)'
	@$(PY) tools/install.py requirements/base.txt
	@$(PY) -c 'import hatch_build; raise SystemExit(not hatch_build.installed_compiler())' \
	   || $(MAKE) $(COMPILER)
	@$(PIP) install --no-deps --no-build-isolation --no-index --editable .
	@touch $@

$(DEV): requirements/dev.txt $(RUNTIME)
	@echo 'Installing the development tools into $(VENV)'
	@$(PY) tools/install.py requirements/dev.txt
	@touch $@

$(TRAINING): requirements/training.txt $(DEV)
	@echo 'Installing torch, for the training of policies, into $(VENV)'
	@$(PY) tools/install.py requirements/training.txt
	@touch $@

# A compiler for other platforms, and for a machine that has none.
$(COMPILER): requirements/compiler.txt | $(PY)
	@echo 'Installing a C compiler into $(VENV)'
	@$(PY) tools/install.py requirements/compiler.txt
	@touch $@

# Go and kubectl, for a machine that has none.
$(GO) $(KUBECTL): $(VENV)/.%: requirements/%.txt | $(PY)
	@command -v $* >/dev/null || { echo 'Installing $* into $(VENV)'; $(PY) tools/install.py $<; }
	@touch $@

$(UV): Makefile | $(PY)
	@$(PY) -m venv .cache/uv
	@.cache/uv/bin/pip --quiet --disable-pip-version-check install uv==$(UV_VERSION)
	@touch $@
