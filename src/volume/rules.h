/* Access rules against addresses.  Inside an RCU read section (host rules read the address list). */
#ifndef SLUICE_VOLUME_RULES_H
#define SLUICE_VOLUME_RULES_H

#include "sluice/volume.h"

/* An address as rules compare it: IPv4-mapped IPv6 is IPv4.  False for other families. */
bool rule_address(const struct sockaddr_storage *peer, uint8_t *family, uint8_t address[16]);

bool rule_matches(const struct volume_rule *rule, const struct sockaddr_storage *peer);

/* The index of the first rule that matches, ~0 if none does. */
uint32_t rules_match(const struct volume_rule *rules, uint32_t count,
                     const struct sockaddr_storage *peer);

#endif
