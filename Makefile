# Radial's commands: `make help` lists them. Everything lands in bin/; nothing is installed.

BIN     := $(CURDIR)/bin
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Modules of the workspace (go.work) see each other; those outside it carry replace lines that must not reach
# the others, so they are always built alone.
WORKSPACE_MODULES := $(shell sed -nE 's/^[[:space:]]*(use[[:space:]]+)?(\.[^[:space:]]*).*/\2/p' go.work)
OUTSIDE_MODULES   := $(patsubst %/go.mod,%,$(wildcard devcluster/go.mod tools/*/go.mod test/bench/*/go.mod))
# Cloud providers are modules of their own, so that their clouds' libraries do not move the root's; each has a
# program cmd/radial-provider-<cloud>.
PROVIDER_MODULES  := $(patsubst %/go.mod,%,$(wildcard providers/*/go.mod))
TOOLS             := $(BIN)/helm $(BIN)/registry $(BIN)/staticcheck $(BIN)/mkimage $(BIN)/versitygw

# One set of build flags everywhere, so that every build finds the cache of the others. No VCS stamp: it
# would fail in an exported tree, and the version comes in through -ldflags.
BUILD := CGO_ENABLED=0 go build -trimpath -buildvcs=false
ALONE := GOWORK=off CGO_ENABLED=0
STAMP := -X github.com/radial-project/radial/internal/core.Version=$(VERSION)

# What a test may rely on: RADIAL_BIN holds the real programs, and one that is missing is a failure.
TEST_ENV     := RADIAL_BIN=$(BIN) RADIAL_REQUIRE_TOOLS=1
TEST_TIMEOUT ?= 25m
FUZZTIME     ?= 30s

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/bash

##@ Build

.PHONY: help
help: ## List every command with what it does
	@awk 'BEGIN {FS = ":.*## "} \
	  /^##@ / {printf "\n%s\n", substr($$0, 5)} \
	  /^[a-z][a-z-]*:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@printf '\nVariables: VERSION TEST_TIMEOUT FUZZTIME TESTFLAGS KEEP NODE (docs/development-cluster.md)\n'

.PHONY: build
build: programs $(BIN)/devcluster ## Build Radial's programs and the development cluster into bin/

.PHONY: programs
programs: ## Build Radial's own programs into bin/ (seconds when warm)
	@mkdir -p $(BIN)
	$(BUILD) -ldflags "$(STAMP)" -o $(BIN)/ ./cmd/...
	@for m in $(filter-out .,$(WORKSPACE_MODULES)); do \
	  (cd $$m && mains=$$(go list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...) && [ -z "$$mains" ] || \
	  (set -x && $(BUILD) -ldflags "$(STAMP)" -o $(BIN)/ $$mains)) || exit 1; done
	@for m in $(PROVIDER_MODULES); do (cd $$m && set -x && GOWORK=off $(BUILD) -ldflags "$(STAMP)" -o $(BIN)/ ./cmd/...) || exit 1; done

.PHONY: devcluster
devcluster: $(BIN)/devcluster ## Build the development cluster into bin/ (about 5 minutes the first time)

DEVCLUSTER_SOURCES := $(wildcard devcluster/*.go devcluster/go.mod devcluster/go.sum devcluster/build.sh) \
	$(shell find devcluster/internal -type f -not -name '*_test.go' 2>/dev/null)
$(BIN)/devcluster: $(DEVCLUSTER_SOURCES)
	@mkdir -p $(BIN)
	devcluster/build.sh $@

.PHONY: realnode
realnode: $(BIN)/devcluster ## Build kubelet, kube-proxy and containerd for NODE=real into bin/realnode/
	devcluster/realnode/build.sh $(BIN)/realnode

.PHONY: tools
tools: $(TOOLS) postgresql ## Get the real programs that tests run: helm, registry, staticcheck, mkimage, versitygw, PostgreSQL

.PHONY: postgresql
postgresql: ## Install Debian's PostgreSQL where it is missing (root or sudo); tests start servers of their own
	@tools/install.sh postgresql

# A test that misses a program names it: `make helm` builds what it asks for.
.PHONY: helm registry staticcheck mkimage versitygw
helm registry staticcheck mkimage versitygw: %: $(BIN)/%

$(BIN)/helm: tools/helm/go.mod tools/helm/go.sum
	$(call build-tool,helm,helm.sh/helm/v4/cmd/helm)
$(BIN)/registry: tools/registry/go.mod tools/registry/go.sum
	$(call build-tool,registry,github.com/distribution/distribution/v3/cmd/registry)
$(BIN)/staticcheck: tools/staticcheck/go.mod tools/staticcheck/go.sum
	$(call build-tool,staticcheck,honnef.co/go/tools/cmd/staticcheck)
$(BIN)/versitygw: tools/versitygw/go.mod tools/versitygw/go.sum
	$(call build-tool,versitygw,github.com/versity/versitygw/cmd/versitygw)

$(BIN)/mkimage: tools/mkimage/go.mod tools/mkimage/go.sum tools/mkimage/main.go
	$(call build-tool,mkimage,.)

# build-tool NAME PACKAGE: touch, because a build from an unchanged cache keeps the old time.
define build-tool
	@mkdir -p $(BIN)
	cd tools/$(1) && GOWORK=off $(BUILD) -ldflags "-s -w" -o $@ $(2)
	@touch $@
endef

# Images hold one static program each, FROM scratch; nothing here needs a container engine. They are pushed to
# REGISTRY where one is given, and lie as OCI layouts in dist/images in any case.
IMAGES    := radial-server radial-controller radial-operator radial
PROVIDER_IMAGES := $(PROVIDER_MODULES:providers/%=radial-provider-%)
PLATFORMS ?= linux-$(shell go env GOARCH)
REGISTRY  ?=

.PHONY: images
images: $(BIN)/mkimage ## Build container images into dist/images, and push them to REGISTRY if it is set (PLATFORMS)
	@for p in $(PLATFORMS); do mkdir -p dist/programs/$$p && \
	  (set -x && GOOS=$${p%-*} GOARCH=$${p#*-} $(BUILD) -ldflags "-s -w $(STAMP)" -o dist/programs/$$p/ $(IMAGES:%=./cmd/%)) && \
	  for m in $(PROVIDER_MODULES); do (cd $$m && set -x && GOOS=$${p%-*} GOARCH=$${p#*-} GOWORK=off $(BUILD) -ldflags "-s -w $(STAMP)" -o $(CURDIR)/dist/programs/$$p/ ./cmd/...) || exit 1; done || exit 1; done
	@for i in $(IMAGES) $(PROVIDER_IMAGES); do $(BIN)/mkimage -program $$i -from dist/programs -version $(VERSION) -layout dist/images/$$i \
	  $(if $(REGISTRY),-push $(REGISTRY)/$$i:$(VERSION)) || exit 1; done

.PHONY: chart-files
chart-files: ## Copy the installation's manifests into the chart, which a test holds to them
	cp installation/controller.yaml installation/crd.yaml installation/holding.yaml installation/server.yaml charts/radial/files/
	cd installation/ankka && cp --parents crd/*.yaml base/namespace.yaml base/*-grant.yaml base/*-policy.yaml components/cloud-provider/*.yaml $(CURDIR)/charts/radial/files/ankka/
	rm -f charts/radial/files/ankka/*/kustomization.yaml charts/radial/files/ankka/components/cloud-provider/kustomization.yaml charts/radial/files/ankka/components/cloud-provider/configmap.yaml

.PHONY: chart
chart: $(BIN)/helm ## Package the chart into dist/
	$(BIN)/helm package charts/radial --destination dist

##@ Check

.PHONY: check
check: check-format check-vet check-lint check-modules check-generated check-scripts check-size ## Everything that CI checks before the tests

GO_FILES = $(shell git ls-files -co --exclude-standard -- '*.go' | while read -r f; do [ -f "$$f" ] && echo "$$f"; done)

.PHONY: check-format
check-format: ## Source is formatted as gofmt would
	@bad=$$(gofmt -l $(GO_FILES)); [ -z "$$bad" ] || { echo "not formatted (gofmt -w mends it):"; echo "$$bad"; exit 1; }

.PHONY: check-vet
check-vet: ## go vet, every module
	@for m in $(WORKSPACE_MODULES); do echo "vet $$m"; (cd $$m && go vet ./...) || exit 1; done
	@for m in $(PROVIDER_MODULES); do echo "vet $$m"; (cd $$m && GOWORK=off go vet ./...) || exit 1; done
	@echo "vet devcluster"; cd devcluster && $(ALONE) go vet -trimpath ./...

# The devcluster's main package is left to vet: it only names the upstream components, and staticcheck would
# read all of Kubernetes for it.
.PHONY: check-lint
check-lint: $(BIN)/staticcheck ## staticcheck, every module (exceptions and their reasons: staticcheck.conf)
	@for m in $(WORKSPACE_MODULES); do echo "staticcheck $$m"; (cd $$m && $(BIN)/staticcheck ./...) || exit 1; done
	@for m in $(PROVIDER_MODULES); do echo "staticcheck $$m"; (cd $$m && GOWORK=off $(BIN)/staticcheck ./...) || exit 1; done
	@echo "staticcheck devcluster"; cd devcluster && $(ALONE) $(BIN)/staticcheck ./internal/... ./e2e/... ./realnode/...

.PHONY: check-modules
check-modules: ## go.mod and go.sum are tidy and the modules are what go.sum says
	@for m in $(WORKSPACE_MODULES); do echo "tidy $$m"; (cd $$m && GOWORK=off go mod tidy -diff && GOWORK=off go mod verify >/dev/null) || exit 1; done
	@for m in $(OUTSIDE_MODULES) $(PROVIDER_MODULES); do echo "tidy $$m"; (cd $$m && GOWORK=off go mod tidy -diff) || exit 1; done

.PHONY: check-generated
check-generated: ## Generated files are what their generators make
	@tools/check-generated.sh

.PHONY: check-scripts
check-scripts: ## Shell scripts parse
	@git ls-files -co --exclude-standard -- '*.sh' .ci/run | while read -r f; do [ ! -f "$$f" ] || bash -n "$$f" || exit 1; done

.PHONY: check-size
check-size: ## No source file passes 800 lines (a warning from 700)
	@tools/check-size.sh 700 800

##@ Test

.PHONY: test
test: build tools ## Every test of every module, with the real programs
	@failed=; \
	for m in $(WORKSPACE_MODULES); do (cd $$m && set -x && $(TEST_ENV) go test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || failed="$$failed $$m"; done; \
	for m in $(PROVIDER_MODULES); do (cd $$m && set -x && GOWORK=off $(TEST_ENV) go test -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || failed="$$failed $$m"; done; \
	(cd devcluster && set -x && $(ALONE) $(TEST_ENV) go test -trimpath -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || failed="$$failed devcluster"; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

.PHONY: test-short
test-short: ## Tests that need no built program: go test ./... (the others skip and say why)
	go test $(TESTFLAGS) ./...

.PHONY: race
race: build tools ## Every test of the workspace under the race detector
	@failed=; \
	for m in $(WORKSPACE_MODULES); do (cd $$m && set -x && $(TEST_ENV) go test -race -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || failed="$$failed $$m"; done; \
	[ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }

.PHONY: compat
compat: ## Play what Radius' clients record and send (RADIUS_CHECKOUT, CONTRIB_CHECKOUT, RADIUS_CLI, RADIUS_COMPILED; see docs/compatibility.md)
	go test -count=1 -v ./test/compat

.PHONY: test-realnode
test-realnode: realnode ## Real pods on this machine (root; changes it while it runs, and undoes that)
	cd devcluster && $(ALONE) $(TEST_ENV) RADIAL_REAL_NODE=1 go test -trimpath -count=1 -timeout $(TEST_TIMEOUT) -run RealNode $(TESTFLAGS) ./e2e

# Packages that kill or race what is real say so by reading RADIAL_FAULT: a plain run takes a sample of their
# points, this takes them all.
FAULT_PACKAGES = $(shell git grep -l RADIAL_FAULT -- '*_test.go' ':!devcluster' ':!providers' | xargs -n1 dirname | sort -u | sed 's|^|./|')

.PHONY: fault
fault: build tools ## Kill real processes at every write, and race them: every point of every package that samples them
	$(TEST_ENV) RADIAL_FAULT=all go test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(FAULT_PACKAGES)
	@for m in $(PROVIDER_MODULES); do (cd $$m && set -x && GOWORK=off $(TEST_ENV) RADIAL_FAULT=all go test -count=1 -timeout $(TEST_TIMEOUT) $(TESTFLAGS) ./...) || exit 1; done

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME (30s)
	@tools/fuzz.sh $(FUZZTIME) $(WORKSPACE_MODULES)

.PHONY: bench
bench: build tools ## Measure the figures that docs/performance.md quotes (BENCHFLAGS='-only sqlite,postgres')
	cd test/bench/river && $(ALONE) go build -trimpath -buildvcs=false -o $(BIN)/bench-river .
	$(TEST_ENV) go run ./test/bench $(BENCHFLAGS)

##@ See

.PHONY: demo
demo: build $(BIN)/helm $(if $(filter real,$(NODE)),realnode) ## Show Radial on a development cluster; KEEP=1 leaves it running, NODE=real runs real pods
	RADIAL_BIN=$(BIN) KEEP=$(KEEP) NODE=$(NODE) go run ./test/demo

.PHONY: clean
clean: ## Remove what the build made
	rm -rf bin dist
