# The benchmarks.  bench/README.md says what each figure means.

$(BUILD)/bench/load: $(addprefix bench/,load.c load_run.c load_conn.c load_rpc.c load_setup.c load_stats.c load.h load_conn.h)
	@mkdir -p $(@D)
	$(Q)echo "  CC $@"; $(CC) $(CPPFLAGS) -I. $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lpthread

$(BUILD)/bench/floor: bench/floor.c bench/load_rpc.c bench/load.h
	@mkdir -p $(@D)
	$(Q)echo "  CC $@"; $(CC) $(CPPFLAGS) -I. $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -luring -lpthread

bench-tools: $(BUILD)/bench/load $(BUILD)/bench/floor

bench: all bench-tools ## floor, NFS-Ganesha and Sluice side by side, under ten minutes
	@python3 bench/run.py $(BENCH_FLAGS)

.PHONY: bench bench-tools
