/* Slices: pieces of memory that a reply points at instead of copying, each with an owner that is told when the
 * last byte has left.  A list belongs to one call and is used on that call's worker only. */
#ifndef SLUICE_BASE_SLICE_H
#define SLUICE_BASE_SLICE_H

#include <stdint.h>

struct slice {
    const uint8_t *data;
    uint32_t length;
    void (*release)(void *owner, const uint8_t *data, uint32_t length); /* NULL: static memory */
    void *owner;
};

enum { SLICES_INLINE = 20 };

struct slice_list {
    struct slice *at;
    uint32_t count, room;
    uint32_t bytes; /* sum of the lengths */
    struct slice within[SLICES_INLINE];
};

/* Lists point into themselves: never copy the struct. */
void slices_init(struct slice_list *list);
/* Appends; takes over the reference even when it fails (it is released then).  -ENOMEM, or -EOVERFLOW past
 * 4 GiB; so do the next two. */
int slices_add(struct slice_list *list, struct slice slice);
/* Appends `length` zero bytes out of static memory. */
int slices_add_zero(struct slice_list *list, uint32_t length);
/* Moves all of from's slices behind to's; from is empty afterwards, its slices released if that fails. */
int slices_move(struct slice_list *to, struct slice_list *from);
/* Cuts the list to its first `bytes` bytes, releasing what falls away.  A slice of which some bytes stay is
 * released later, once, with the length that is left: owners count releases, not bytes. */
void slices_cut(struct slice_list *list, uint32_t bytes);
/* Releases everything; the list can be used again. */
void slices_clear(struct slice_list *list);

#endif
