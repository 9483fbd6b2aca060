# Targets that test.  `check` is what CI runs: reduced counts, fixed seeds, under 25 minutes; `soak` the full counts.

SEED ?= 20261130
TEST_ENV = SLUICE_BUILD=$(BUILD) BUILD=$(BUILD) PYTHONDONTWRITEBYTECODE=1
TREE_TOOL := $(BUILD)/tests/nfstree
LIBNFS_OPS := $(BUILD)/tests/libnfs_ops
RECFS := $(BUILD)/tests/recfs

CHECKS := lint check-unit check-nfs check-cli check-crash check-kernel check-sanitizers check-fuzz
check: deps ## install what is missing; all tests, reduced counts (under 25 minutes)
	@for part in $(CHECKS); do $(MAKE) --no-print-directory $$part || exit 1; done
	@echo "check: everything passed"

unit: $(UNIT_PROGRAMS)

check-unit: all $(UNIT_PROGRAMS) ## unit tests
	@tests/run-unit $(UNIT_PROGRAMS)

check-nfs: all bench-tools $(TREE_TOOL) $(LIBNFS_OPS) ## every procedure, bad input, random histories, a big directory
	@tests/run $(TEST_ENV) tests/nfs/test_nfs3_procedures.py tests/nfs/test_nfs4_core.py tests/nfs/test_nfs4_state.py tests/nfs/test_nfs4_copy.py \
		tests/nfs/test_nfs4_many.py tests/nfs/test_nfs4_bad.py tests/nfs/test_nfs4_delegations.py tests/nfs/test_nfs4_unlinked.py \
		tests/nfs/test_bad_input.py tests/nfs/test_duplicates.py \
		tests/nfs/test_libnfs.py \
		'tests/nfs/test_mutations.py --seed $(SEED)' tests/nfs/test_races.py tests/nfs/test_exhaustion.py \
		tests/nfs/test_hot_path.py tests/nfs/test_watch.py 'tests/nfs/test_random_model.py --operations 8000 --seed $(SEED)' \
		'tests/nfs/test_random_model.py --operations 2500 --seed $(SEED) --versions 3,4.0,4.1,4.2' \
		'tests/nfs/test_random_versions.py --operations 5000 --seed $(SEED)' \
		tests/nfs/test_snapshots.py 'tests/nfs/test_diff.py --seed $(SEED)' \
		'tests/nfs/test_prefix.py --snapshots 200 --seed $(SEED)' \
		'tests/nfs/test_big_directory.py --files 20000' tests/nfs/test_bench_load.py tests/nfs/test_readahead.py \
		tests/nfs/test_cache_policy.py tests/nfs/test_gate.py tests/nfs/test_access_rules.py tests/nfs/test_quota.py

check-cli: all ## the command line and the server's options
	@tests/run $(TEST_ENV) $(wildcard tests/cli/test_*)

check-crash: all $(RECFS) ## kill -9, power loss, failing disks, reduced
	@tests/run $(TEST_ENV) tests/crash/test_images.py 'tests/crash/killer.py --kills 12 --seed $(SEED)' \
		'tests/crash/powerloss.py --images 80 --seed $(SEED)' tests/crash/faults.py

check-kernel: all ## a real Linux client
	@tests/run $(TEST_ENV) 'tests/kernel/run 3000 16 1000'

check-sanitizers: $(LIBNFS_OPS) ## protocol tests against a server built with ASan and UBSan
	@$(MAKE) --no-print-directory SAN=address all
	@tests/run SLUICE_BUILD=build-address BUILD=build-address LIBNFS_OPS=$(abspath $(LIBNFS_OPS)) PYTHONDONTWRITEBYTECODE=1 \
		tests/nfs/test_nfs3_procedures.py tests/nfs/test_nfs4_core.py tests/nfs/test_nfs4_state.py tests/nfs/test_nfs4_copy.py \
		tests/nfs/test_nfs4_delegations.py \
		tests/nfs/test_bad_input.py tests/nfs/test_duplicates.py \
		tests/nfs/test_libnfs.py tests/nfs/test_readahead.py tests/nfs/test_snapshots.py tests/nfs/test_watch.py \
		'tests/nfs/test_mutations.py --seed $(SEED)' tests/nfs/test_races.py tests/nfs/test_exhaustion.py \
		'tests/nfs/test_random_model.py --operations 3000 --seed $(SEED)' \
		'tests/nfs/test_random_model.py --operations 1000 --seed $(SEED) --versions 3,4.1,4.2' \
		'tests/nfs/test_random_versions.py --operations 1500 --seed $(SEED)'

check-fuzz: ## a minute of libFuzzer on the RPC and NFS decoders, and the state of NFSv4
	@$(MAKE) --no-print-directory fuzz FUZZ_SECONDS=60

soak: all $(UNIT_PROGRAMS) $(TREE_TOOL) $(RECFS) ## the full counts: about 40 minutes
	@tests/run $(TEST_ENV) 'tests/nfs/test_random_model.py --operations 100000 --restarts 20' \
		'tests/nfs/test_random_model.py --operations 30000 --restarts 20 --versions 3,4.0,4.1,4.2' \
		'tests/nfs/test_random_versions.py --operations 100000 --compares 40' \
		'tests/nfs/test_prefix.py --snapshots 1000 --looks 1000' \
		'tests/nfs/test_big_directory.py --files 1000000 --linear' \
		'tests/nfs/test_mutations.py --calls 500000' 'tests/nfs/test_exhaustion.py --scale 8' \
		'tests/nfs/test_exhaustion.py --still' 'tests/nfs/test_nfs4_many.py --full' 'env SLUICE_ROUNDS=20 tests/nfs/test_races.py' \
		'tests/crash/killer.py --kills 200' 'tests/crash/powerloss.py --images 2000' \
		'tests/crash/powerloss.py --try-each' tests/crash/faults.py 'tests/kernel/run 20000 128'

, := ,
FUZZ_SECONDS ?= 60
FUZZ_TARGETS := $(patsubst tests/fuzz/%.c,build-fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
# What stands beneath a target; the rest it brings itself.
FUZZ_LAYERS_fuzz_rpc := base rpc
FUZZ_LAYERS_fuzz_nfs3 := base nfs nfs/v4 nfs/state
FUZZ_LAYERS_fuzz_nfs4 := base nfs nfs/v4 nfs/state
FUZZ_WITHOUT_fuzz_nfs4 := src/base/blocking.c
FUZZ_LAYERS_fuzz_state4 := base nfs nfs/v4 nfs/state
FUZZ_WITHOUT_fuzz_state4 := src/base/blocking.c
# It has a clock of its own, and runs what others would run in coroutines.
FUZZ_FLAGS_fuzz_state4 := $(addprefix -Wl$(,)--wrap=,clock_monotonic_ns time worker_spawn worker_self worker_at coro_sleep \
	urcu_memb_call_rcu urcu_memb_barrier state_table_init)
fuzz_sources = $(filter-out $(FUZZ_WITHOUT_$(1)),$(wildcard $(foreach d,$(FUZZ_LAYERS_$(1)),src/$(d)/*.c src/$(d)/*.S)))

.SECONDEXPANSION:
build-fuzz/%: tests/fuzz/%.c $$(call fuzz_sources,$$*) $(wildcard include/sluice/*.h tests/fuzz/*.h)
	@mkdir -p $(@D)
	$(Q)echo "  FUZZ $<"; clang -std=gnu17 $(CPPFLAGS) -g -O1 -pthread -fsanitize=fuzzer,address,undefined \
		-fno-sanitize-recover=undefined $(FUZZ_FLAGS_$*) -o $@ $(filter-out %.h,$^) $(SERVER_LIBS)

fuzz: $(FUZZ_TARGETS) ## libFuzzer for FUZZ_SECONDS on each target
	@tests/run-fuzz $(FUZZ_SECONDS) $(FUZZ_TARGETS)

lint: ## layers and shape of the sources
	@tests/lint

$(TREE_TOOL): tests/nfs/nfstree.c
	@mkdir -p $(@D)
	$(Q)echo "  CC $<"; $(CC) $(CPPFLAGS) $(CFLAGS) $(LDFLAGS) -o $@ $< -lnfs

$(LIBNFS_OPS): tests/nfs/libnfs_ops.c tests/nfs/libnfs_raw.c tests/nfs/libnfs_ops.h
	@mkdir -p $(@D)
	$(Q)echo "  CC $@"; $(CC) $(CPPFLAGS) -Itests $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lnfs

$(RECFS): tests/crash/recfs.c
	@mkdir -p $(@D)
	$(Q)echo "  CC $<"; $(CC) $(CPPFLAGS) $(CFLAGS) $$(pkg-config --cflags fuse3) $(LDFLAGS) -o $@ $< \
		$$(pkg-config --libs fuse3)

.PHONY: check unit check-unit check-nfs check-cli check-crash check-kernel check-sanitizers check-fuzz soak fuzz lint
