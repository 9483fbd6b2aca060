/* Files that are open and have lost their last name: whose holder is silent they are not kept for. */
#include "nfs/state/private.h"

/* False: there may be more of them. */
static bool end_silent_holders(struct state_file *file)
{
    unsigned gone = 0;
    struct state_link *live = &file->opens;
    while (live->next != &file->opens) {
        struct state_client *client = link_of(live->next, struct state, of_file)->client;
        if (!client_is_expired(client))
            live = live->next;
        else if (!client_give_way(client, &gone))
            return false;
    }
    return true;
}

static bool let_go(const struct store_object *object)
{
    struct state_file *file = file_find(object);
    if (!file)
        return true;
    struct state_link hold; /* it must not go while it is looked at */
    link_add(&file->locks, &hold);
    bool done = end_silent_holders(file);
    link_remove(&hold);
    file_check(file);
    return done;
}

void files_let_go(void)
{
    enum { ONCE = 64 };
    struct store *store = state_all.store;
    struct store_object objects[ONCE];
    uint32_t at = 0;
    for (unsigned count; (count = store->ops->unlinked(store, objects, ONCE, &at)) > 0;) {
        for (unsigned i = 0; i < count; i++) {
            bool done;
            do {
                state_lock_all();
                done = let_go(&objects[i]);
                state_unlock_all();
            } while (!done);
        }
    }
}
