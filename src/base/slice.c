#include "sluice/base_slice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { ZERO_BYTES = 65536 };

static const uint8_t zeroes[ZERO_BYTES];

static void release(const struct slice *slice)
{
    if (slice->release)
        slice->release(slice->owner, slice->data, slice->length);
}

void slices_init(struct slice_list *list)
{
    list->at = list->within;
    list->count = list->bytes = 0;
    list->room = SLICES_INLINE;
}

static int make_room(struct slice_list *list, uint32_t more)
{
    if (list->room - list->count >= more)
        return 0;
    uint64_t room = ((uint64_t)list->count + more) * 2;
    if (room > UINT32_MAX)
        return -ENOMEM;
    struct slice *grown = malloc(room * sizeof(*grown));
    if (!grown)
        return -ENOMEM;
    memcpy(grown, list->at, list->count * sizeof(*grown));
    if (list->at != list->within)
        free(list->at);
    list->at = grown;
    list->room = (uint32_t)room;
    return 0;
}

int slices_add(struct slice_list *list, struct slice slice)
{
    int error = slice.length > UINT32_MAX - list->bytes ? -EOVERFLOW : make_room(list, 1);
    if (error) {
        release(&slice);
        return error;
    }
    list->at[list->count++] = slice;
    list->bytes += slice.length;
    return 0;
}

int slices_add_zero(struct slice_list *list, uint32_t length)
{
    while (length) {
        uint32_t piece = length < ZERO_BYTES ? length : ZERO_BYTES;
        int error = slices_add(list, (struct slice){.data = zeroes, .length = piece});
        if (error)
            return error;
        length -= piece;
    }
    return 0;
}

int slices_move(struct slice_list *to, struct slice_list *from)
{
    int error = from->bytes > UINT32_MAX - to->bytes ? -EOVERFLOW : make_room(to, from->count);
    if (error) {
        slices_clear(from);
        return error;
    }
    memcpy(to->at + to->count, from->at, from->count * sizeof(*to->at));
    to->count += from->count;
    to->bytes += from->bytes;
    from->count = from->bytes = 0;
    return 0;
}

void slices_cut(struct slice_list *list, uint32_t bytes)
{
    while (list->bytes > bytes) {
        struct slice *last = &list->at[list->count - 1];
        uint32_t over = list->bytes - bytes;
        if (over < last->length) {
            last->length -= over;
            list->bytes = bytes;
            return;
        }
        list->bytes -= last->length;
        list->count--;
        release(last);
    }
}

void slices_clear(struct slice_list *list)
{
    for (uint32_t i = 0; i < list->count; i++)
        release(&list->at[i]);
    if (list->at != list->within)
        free(list->at);
    slices_init(list);
}
