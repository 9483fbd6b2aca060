/* A run of the load generator, from its options to its result. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "load_conn.h"

enum { SMALL_FILE = 1 << 20 };

/* Everything that another run with other options needs. */
static struct load_run *run_new(const struct load_options *o, struct load_target *t)
{
    struct load_run *run = calloc(1, sizeof *run);
    if (run) {
        run->options = o;
        run->target = t;
    }
    return run;
}

/* Makes the files whole; many small ones at once, or a few large ones with many WRITEs each. */
static int prepare(const struct load_options *options)
{
    struct load_options o = *options;
    struct load_target target = {0};
    bool small = o.file_size < SMALL_FILE;
    o.op = &op_prepare;
    o.order = ORDER_DISK;
    o.size = o.size_max = small && o.file_size ? (uint32_t)o.file_size : SMALL_FILE;
    o.connections = o.prepare_connections < o.files ? o.prepare_connections : o.files;
    o.threads = o.threads < o.connections ? o.threads : o.connections;
    o.depth = o.file_size ? small ? 32 : 1 : 128;
    o.inflight = small ? 1 : 8;
    o.no_commit = small;
    o.rate = o.stable = 0;
    o.sync_every = 0;
    o.count = o.files;
    struct load_run *run = run_new(&o, &target);
    int error = run ? setup_target(&o, &target) : -1;
    if (!error)
        error = load_run(run);
    if (run && run->total.errors) {
        fprintf(stderr, "load: --prepare: %" PRIu64 " errors: %s\n", run->total.errors,
                run->total.error);
        error = -1;
    }
    setup_free(&target);
    free(run);
    return error;
}

/* Reads each file whole and checks every byte. */
static struct load_run *read_back(const struct load_options *options, struct load_target *t,
                                  struct load_options *o)
{
    *o = *options;
    o->op = &op_read_back;
    o->order = ORDER_DISK;
    o->check_full = true;
    o->rate = 0;
    o->seconds = 0;
    o->count = o->files;
    struct load_run *run = run_new(o, t);
    if (run && load_run(run)) {
        free(run);
        run = NULL;
    }
    return run;
}

/* All files once for each epoch; no epoch begins before the one before it has ended. */
static struct load_run *run_epochs(struct load_options *o, struct load_run *total)
{
    struct load_run *epochs = calloc(o->epochs, sizeof *epochs);
    o->count = o->files;
    for (uint32_t i = 0; epochs && i < o->epochs; i++) {
        epochs[i].options = o;
        epochs[i].target = total->target;
        epochs[i].first_ticket = (uint64_t)i * o->files;
        if (load_run(&epochs[i])) {
            free(epochs);
            return NULL;
        }
        load_run_add(total, &epochs[i]);
    }
    return epochs;
}

static int run_and_print(struct load_options *o, struct load_target *t)
{
    struct load_options back_options;
    struct load_run *run = run_new(o, t), *epochs = NULL, *back = NULL;
    int status = run ? setup_target(o, t) : 1;
    if (!status && o->epochs)
        status = (epochs = run_epochs(o, run)) ? 0 : 1;
    else if (!status)
        status = load_run(run);
    if (!status && o->read_back) {
        back = read_back(o, t, &back_options);
        status = back ? 0 : 1;
    }
    if (!status) {
        if (back && !run->total.errors)
            memcpy(run->total.error, back->total.error, sizeof run->total.error);
        report_print(&(struct load_report){run, epochs, back});
        status = run->total.errors || (back && back->total.errors);
    }
    free(back);
    free(epochs);
    free(run);
    return status;
}

int main(int argc, char **argv)
{
    struct load_options o = options_parse(argc, argv);
    struct load_target target = {0};
    if (o.prepare && prepare(&o))
        return 1;
    if (!o.count && !o.seconds && !o.epochs)
        return 0;
    int status = run_and_print(&o, &target) ? 1 : 0;
    setup_free(&target);
    return status;
}
