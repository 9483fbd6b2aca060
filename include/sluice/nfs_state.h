/* NFSv4's state as admins see it: how much of it there may be and is, which clients have it, and the end of a client's.
 * Any thread, but for what is said to be a coroutine. */
#ifndef SLUICE_NFS_STATE_H
#define SLUICE_NFS_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct state_options {
    uint32_t lease_seconds, grace_seconds;
    /* Of all clients together.  Opens with what lock-owners have in them; locks are ranges. */
    uint64_t clients_most, sessions_most, opens_most, locks_most, delegations_most;
};

struct state_counts { /* what of these there is */
    uint64_t clients, sessions, opens, locks, delegations;
};
/* False, and zeroes: NFSv4 is not served. */
bool state_count(struct state_counts *counts);

enum { STATE_NAME_ROOM = 100 };

struct state_client_info {
    uint32_t number; /* which no other client has had since the server started */
    uint32_t minor;  /* minor version */
    struct sockaddr_storage peer;
    bool confirmed, expired; /* expired: it keeps what it has until somebody else needs it */
    uint32_t silent_seconds; /* since its lease was renewed */
    uint32_t opens, locks, delegations;
    /* Printable ASCII: other bytes and the backslash are \xHH; what is longer ends in "...". */
    char owner[STATE_NAME_ROOM];          /* by which the client names itself */
    char implementation[STATE_NAME_ROOM]; /* of 4.1 and later; may be empty */
};
/* All of them, the oldest first; *list is to be freed.  -ENOMEM.  Coroutine. */
int state_clients(struct state_client_info **list, unsigned *count);

/* Ends all that a client has and forgets its record, so that it cannot reclaim; it is told when it comes next:
 * BADSESSION, EXPIRED.  *was: what it had.  False: there is no such client.  Coroutine. */
bool state_evict(uint32_t number, struct state_client_info *was);
/* The same of all clients of an address, whatever their ports: how many there were, or -ENOMEM.  Coroutine. */
int state_evict_address(const struct sockaddr_storage *address);

#endif
