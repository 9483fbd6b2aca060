/* libFuzzer: the input is what one connection receives.  Its first byte says in what pieces; the
 * rest goes through record marking and the call decoder, and every reply header is written. */
#include <stdlib.h>
#include <string.h>

#include "rpc/message.h"
#include "rpc/record.h"

enum { RECORD_MAX = 100000 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void decode(const struct record *record)
{
    /* A copy of exactly its size, so that reading past its end shows. */
    uint8_t *exact = malloc(record->length ? record->length : 1), head[MESSAGE_HEAD_MOST];
    memcpy(exact, record->data, record->length);
    struct rpc_call call;
    enum message_auth auth = 0;
    switch (message_decode(exact, record->length, &call, &auth)) {
    case MESSAGE_CALL:
        while (xdr_left(&call.args) >= 4 && !call.args.bad) {
            uint32_t length;
            xdr_get_opaque(&call.args, UINT32_MAX, &length);
        }
        if (call.cred.group_count > RPC_GROUPS_MAX)
            abort();
        message_prog_mismatch(head, call.xid, call.program, call.version);
        break;
    case MESSAGE_DENIED:
        if (auth == 0)
            abort();
        message_auth_error(head, call.xid, auth);
        break;
    case MESSAGE_MISMATCH:
        message_rpc_mismatch(head, call.xid);
        break;
    case MESSAGE_TRUNCATED:
        message_accepted(head, call.xid, MESSAGE_GARBAGE_ARGS);
        break;
    case MESSAGE_LOST:
        if (record->length >= 8)
            abort();
        break;
    case MESSAGE_NOT_CALL:
        break;
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct buffer_pool pool;
    struct record_reader reader;
    size_t step = 1 + (size_t)data[0] * data[0], at = 1;
    int result = 0;
    buffers_init(&pool, RECORD_MAX);
    if (record_reader_init(&reader, &pool, RECORD_MAX) < 0)
        return 0;
    while (at < size && result >= 0) {
        uint8_t *to;
        uint32_t room;
        bool whole;
        record_space(&reader, &to, &room, &whole);
        size_t take = size - at < step ? size - at : step;
        if (room == 0)
            abort();
        if (take > room)
            take = room;
        memcpy(to, data + at, take);
        record_received(&reader, (uint32_t)take);
        at += take;
        struct record record;
        while ((result = record_next(&reader, &record)) == 1) {
            if (record.length > RECORD_MAX)
                abort();
            decode(&record);
            record_done(&reader, &record);
        }
    }
    record_reader_free(&reader);
    buffers_free(&pool);
    return 0;
}
