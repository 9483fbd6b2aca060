# The benchmarks.  docs/performance.md says what each figure means; BENCH_FLAGS='--only ram,cold --rounds 3'
# and the like go to bench/run.py.

$(BUILD)/bench/load: $(addprefix bench/,load.c load_options.c load_report.c load_ops.c load_files.c \
	load_write.c load_list.c load_stream.c load_run.c load_conn.c load_rpc.c load_frame.c load_setup.c load_stats.c \
	load_v4.c load_v4_setup.c load.h load_conn.h load_files.h load_setup.h)
	@mkdir -p $(@D)
	$(Q)echo "  CC $@"; $(CC) $(CPPFLAGS) -I. $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -lpthread

$(BUILD)/bench/floor: bench/floor.c bench/load_frame.c bench/load.h
	@mkdir -p $(@D)
	$(Q)echo "  CC $@"; $(CC) $(CPPFLAGS) -I. $(CFLAGS) $(LDFLAGS) -o $@ $(filter %.c,$^) -luring -lpthread

bench-tools: $(BUILD)/bench/load $(BUILD)/bench/floor

bench: all bench-tools ## floor, NFS-Ganesha and Sluice side by side, under ten minutes
	-@conf/deps bench
	@python3 bench/run.py $(BENCH_FLAGS)

bench-full: all bench-tools ## everything, medians of five; renews docs/performance.*, docs/plots: half an hour
	-@conf/deps bench
	@python3 bench/run.py --full $(BENCH_FLAGS); status=$$?; python3 bench/report.py && exit $$status

.PHONY: bench bench-full bench-tools
