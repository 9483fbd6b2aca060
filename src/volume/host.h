/* This machine's addresses, kept for volume_is_this_host(). */
#ifndef SLUICE_VOLUME_HOST_H
#define SLUICE_VOLUME_HOST_H

/* Frees the list; nobody looks anything up any more. */
void host_addresses_free(void);

#endif
