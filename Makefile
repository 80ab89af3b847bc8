# Everything that llmq's developers and CI run. `make help` lists it.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

BUILD   := .build
TOOLS   := $(CURDIR)/$(BUILD)/tools
GOLANGCI_VERSION := v2.15.0
GOVULNCHECK_VERSION := v1.9.0
CYCLONEDX_VERSION := v1.10.0
FUNCTIONS := enqueue worker admin
# One set of flags everywhere, so that what was compiled once is not compiled again; only
# the race detector needs another, with cgo.
GO_FLAGS := -trimpath -tags=lambda.norpc
NO_CGO := CGO_ENABLED=0
CDK := infra/cdk
CDK_ENV := JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=20 CDK_DISABLE_CLI_TELEMETRY=true
# Flags of the test run; CI sets -race, which needs a C compiler.
TESTFLAGS ?=
# Tests without the race detector: those that are the vendors' own clients take minutes
# and gigabytes to compile under it, and drive what runs in other processes or packages; the
# limiter's simulator is one goroutine.
NO_RACE := ./local/rig ./local/fakellm ./local/bench/limiter ./pkg/llmq/httpapi/sdkcompat

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  %-15s %s\n", $$1, $$2}'

.PHONY: run
run: ## start everything here, send one call through the queue, serve on 127.0.0.1:8080 (LLMQ_LOCAL_PORT; RUNFLAGS=-v shows logs; JOBS=text=./examples/jobs runs a worker of your own)
	@echo "· compiling (the first time takes a minute or two)"
	@mkdir -p $(BUILD) && $(NO_CGO) go build $(GO_FLAGS) -o $(BUILD)/run ./local/run
	@exec $(BUILD)/run $(RUNFLAGS) $(foreach job,$(JOBS),-jobs $(job))

.PHONY: test
test: ## every test that needs only Go, cut off from all networks where the system lets it, and the CDK module's where Node is installed; writes results/test-suite.md
	@echo "· Go tests"
	@command -v valkey-server >/dev/null || echo "· valkey-server is not installed: tests that need a real Valkey are skipped, the rest runs on miniredis"
	@mkdir -p $(BUILD) && $(NO_CGO) go build $(GO_FLAGS) -o $(BUILD)/testsuite ./local/testsuite
	$(BUILD)/testsuite $(TESTFLAGS) -without-race "$(NO_RACE)" -out results/test-suite.md
	go -C local/compose test ./...
	@if command -v node >/dev/null; then $(MAKE) --no-print-directory cdk-test; else echo "· node is not installed: the CDK module was not tested"; fi

.PHONY: test-emulators
test-emulators: ## the SQS suite on two other emulators, which npm installs in .build (needs Node 20)
	$(NO_CGO) go run $(GO_FLAGS) ./local/emulators

.PHONY: test-clients
test-clients: ## the vendors' own clients against the real functions: Go's, npm's (needs Node 20), PyPI's where they can be installed (CLIENTS=go|node|python, empty is all)
	@mkdir -p $(BUILD) && $(NO_CGO) go build $(GO_FLAGS) -o $(BUILD)/test-clients ./local/clients
	@$(BUILD)/test-clients -dir $(BUILD)/clients $(if $(CLIENTS),-only "$(CLIENTS)")

.PHONY: conformance-aws
conformance-aws: ## the SQS suite on Amazon SQS in AWS_REGION, with your credentials: some thousand requests, queues deleted after
	$(NO_CGO) go test $(GO_FLAGS) -count=1 -timeout 30m -parallel 8 -v -run ConformanceOfAWS ./local/cloud/sqs -aws-region "$(AWS_REGION)"

.PHONY: build
build: ## the functions' bootstrap binaries for arm64 and amd64, in dist/, with their sizes
	@for arch in arm64 amd64; do for f in $(FUNCTIONS); do \
		mkdir -p dist/$$arch/$$f; \
		$(NO_CGO) GOOS=linux GOARCH=$$arch go build $(GO_FLAGS) -buildvcs=false -ldflags "-s -w -buildid=" -o dist/$$arch/$$f/bootstrap ./functions/$$f; \
		printf '%-6s %-8s %5.1f MiB\n' $$arch $$f $$(stat -c %s dist/$$arch/$$f/bootstrap | awk '{print $$1/1048576}'); \
	done; done

.PHONY: sam
sam: ## the functions for sam local, as local/sam-template.yaml names them, in .build/sam
	@for f in $(FUNCTIONS); do mkdir -p $(BUILD)/sam/$$f; \
		$(NO_CGO) GOOS=linux go build $(GO_FLAGS) -ldflags "-s -w" -o $(BUILD)/sam/$$f/bootstrap ./functions/$$f; \
		sed 's#//127.0.0.1:8090#//fakellm:8090#' local/llmq.yaml > $(BUILD)/sam/$$f/llmq.yaml; done
	@echo "built for $$(go env GOARCH)$$(if [ "$$(go env GOARCH)" = arm64 ]; then echo ": sam local takes --parameter-overrides Architecture=arm64"; fi)"

COMPOSE := docker compose --env-file local/compose.env -f local/docker-compose.yml
.PHONY: docker
docker:
	@command -v docker >/dev/null && docker compose version >/dev/null 2>&1 || { echo "docker with its compose plugin is not installed; make run starts everything without it" >&2; exit 1; }
	@docker info >/dev/null 2>&1 || { echo "the Docker daemon can't be reached: start it, or join its group; make run starts everything without it" >&2; exit 1; }

.PHONY: up
up: docker ## Valkey, SQS, S3 and the fake provider in containers (COMPOSE_PROFILES=metrics: a collector and Prometheus too)
	$(COMPOSE) up --detach --build --wait
	@echo "for programs on this machine: set -a; . local/compose.env; set +a"

.PHONY: down
down: docker ## stop the containers, and drop what they held
	$(COMPOSE) --profile metrics down --volumes

$(TOOLS)/golangci-lint-$(GOLANGCI_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	@mv $(TOOLS)/golangci-lint $@

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) ## golangci-lint, vet among its linters; scripts are held by luacheck, where it is installed, in their packages' tests
	$(NO_CGO) GOFLAGS="$(GO_FLAGS)" $< run ./...

$(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK_VERSION)
	@mv $(TOOLS)/govulncheck $@

.PHONY: vuln
vuln: $(TOOLS)/govulncheck-$(GOVULNCHECK_VERSION) ## known vulnerabilities that the code reaches, in both modules; fails where https://vuln.go.dev can't be reached
	$< -tags lambda.norpc ./...
	$< -C $(CDK) ./...

$(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION):
	@mkdir -p $(TOOLS)
	GOBIN=$(TOOLS) go install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX_VERSION)
	@mv $(TOOLS)/cyclonedx-gomod $@

.PHONY: sbom
sbom: $(TOOLS)/cyclonedx-gomod-$(CYCLONEDX_VERSION) ## what each function of dist/ is made of, in dist/sbom (CycloneDX), read from the binaries that make build made
	@mkdir -p dist/sbom
	@for f in $(FUNCTIONS); do for arch in arm64 amd64; do \
		$< bin -json -noserial -output dist/sbom/$$f-$$arch.cdx.json dist/$$arch/$$f/bootstrap; \
		echo "dist/sbom/$$f-$$arch.cdx.json: $$(grep -c '"purl"' dist/sbom/$$f-$$arch.cdx.json) modules"; done; done

.PHONY: reproducible
reproducible: ## builds the functions twice from nothing, in folders of two names, and compares the hashes of their zips
	@$(NO_CGO) go run $(GO_FLAGS) ./local/supply

.PHONY: fmt
fmt: $(TOOLS)/golangci-lint-$(GOLANGCI_VERSION) ## format the Go code
	$< fmt ./...

.PHONY: golden
golden: ## rewrite the golden files and generated documents
	@for pkg in $$(git grep -l 'flag.Bool("update"' -- '*_test.go' ':!infra' | xargs -n1 dirname | sort -u); do \
		go test $(GO_FLAGS) ./$$pkg -update || exit 1; done
	@if command -v node >/dev/null; then $(CDK_ENV) go -C $(CDK) test ./... -update; fi

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (10s)
	@for pkg in $$(go list ./...); do for target in $$(go test -list '^Fuzz' $$pkg | grep ^Fuzz || true); do \
		echo "· $$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $${FUZZTIME:-10s} $$pkg; done; done

.PHONY: bench
bench: ## benchmarks, what one call through the queue costs, and how the law of the learned limit does
	$(NO_CGO) go test $(GO_FLAGS) -run '^$$' -bench . -benchmem ./pkg/llmq/... ./local/cloud/...
	$(NO_CGO) go run $(GO_FLAGS) ./local/bench
	$(NO_CGO) go run $(GO_FLAGS) ./local/bench/limiter -seeds 1

.PHONY: bench-check bench-update
bench-check: ## holds benchmarks against results/bench.json: counts exactly, ratios to a baseline of the same run within 40 % at the median of 5 (needs valkey-server)
	$(NO_CGO) go run $(GO_FLAGS) ./local/bench/check -against results/bench.json

bench-update: ## measures results/bench.json anew
	$(NO_CGO) go run $(GO_FLAGS) ./local/bench/check -update -against results/bench.json

.PHONY: sweep
sweep: ## where the time goes under concurrency limits from 1 to 128, waiting or being served: results/sweep.md (needs valkey-server)
	$(NO_CGO) go run $(GO_FLAGS) ./local/bench/sweep -out results/sweep.md

S ?=
SCALE ?= short
SEED ?= 1
PARALLEL ?= 1
OUT ?=
FOR ?=
# What CI runs of them: the quick ones. All take ten minutes, which together with the rest is more than CI has.
CI_SCENARIOS := S01 S03 S16 S19 S20 S53 S54 S55 S57
# Much at once, and what goes wrong.
LOAD_SCENARIOS := S03 S07 S22 S27 S31 S33 S35 S35c S53 S54 S55 S57 backlog backlog-bare rt-start forecast
CHAOS_SCENARIOS := S11 S12 S18 S20 S35b S37 S50 outage-kill outage-blip outage-wipe outage-sqs outage-s3 outage-provider
.PHONY: scenarios
scenarios: ## S="S53 S54" or S=all: what llmq promises as a whole, on the real functions and a real Valkey (SCALE=short|full, SEED=1, PARALLEL=1, OUT=file, FOR=1h for soak, which all leaves out)
	@mkdir -p $(BUILD) && $(NO_CGO) go build $(GO_FLAGS) -o $(BUILD)/scenarios ./local/scenarios
	@$(BUILD)/scenarios -scale "$(SCALE)" -seed "$(SEED)" -parallel "$(PARALLEL)" $(if $(FOR),-for "$(FOR)") $(if $(OUT),-out "$(OUT)") $(S)

.PHONY: load chaos soak
load: ## the scenarios of much at once: bursts, backlogs, sustained load, caps (SCALE, SEED, OUT as for scenarios)
	@$(MAKE) --no-print-directory scenarios S="$(LOAD_SCENARIOS)"

chaos: ## the scenarios of what goes wrong: kills, outages of Valkey, SQS, S3 and the provider, bad replies (SCALE, SEED, OUT as for scenarios)
	@$(MAKE) --no-print-directory scenarios S="$(CHAOS_SCENARIOS)"

soak: ## an hour (FOR=2h) of mixed load and faults: nothing lost, and memory, files and goroutines level
	@$(MAKE) --no-print-directory scenarios S=soak SCALE=full

$(CDK)/node_modules/.package-lock.json: $(CDK)/package-lock.json
	cd $(CDK) && npm ci --ignore-scripts --no-fund --no-audit --loglevel=error

.PHONY: synth
synth: build $(CDK)/node_modules/.package-lock.json ## CloudFormation templates of every environment, in infra/cdk/cdk.out
	@cd $(CDK) && for f in environments/*.yaml; do env=$$(basename $$f .yaml); \
		$(CDK_ENV) npx cdk synth -q --strict --no-notices -c env=$$env -o cdk.out/$$env; echo "wrote $(CDK)/cdk.out/$$env"; done

E ?=
.PHONY: deploy diff
deploy: build $(CDK)/node_modules/.package-lock.json ## E=dev: deploys an environment to the account that you are signed in to; docs/DEPLOY.md
	@test -n "$(E)" || { echo "which environment? make deploy E=dev"; exit 2; }
	cd $(CDK) && $(CDK_ENV) npx cdk deploy "llmq-$(E)" -c "env=$(E)" --strict --no-notices -o "cdk.out/$(E)"

diff: build $(CDK)/node_modules/.package-lock.json ## E=dev: what a deployment would change
	@test -n "$(E)" || { echo "which environment? make diff E=dev"; exit 2; }
	cd $(CDK) && $(CDK_ENV) npx cdk diff "llmq-$(E)" -c "env=$(E)" --no-notices -o "cdk.out/$(E)"

.PHONY: cost
cost: ## what each environment costs on AWS, idle and per million calls, by a dated price list
	@$(NO_CGO) go run $(GO_FLAGS) ./local/cost $(CDK)/environments/*.yaml

.PHONY: cdk-test
cdk-test: ## the CDK module's tests (needs Node)
	@echo "· CDK tests"
	$(CDK_ENV) go -C $(CDK) test ./...

.PHONY: ci
ci: ## all that CI runs
	$(MAKE) lint
	$(MAKE) test TESTFLAGS=-race
	$(MAKE) scenarios S="$(CI_SCENARIOS)" PARALLEL=3
	$(MAKE) synth
	@echo "· known vulnerabilities were not looked for: make vuln asks https://vuln.go.dev"

.PHONY: clean
clean: ## remove what was built
	rm -rf $(BUILD) dist $(CDK)/cdk.out $(CDK)/node_modules
