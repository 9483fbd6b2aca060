/* A volume's settings as texts, the same for create and set. */
#ifndef SLUICE_ADMIN_VOLUME_CONFIG_H
#define SLUICE_ADMIN_VOLUME_CONFIG_H

#include "admin/commands.h"

struct volume_settings {
    struct volume_config *config; /* rules are freed and replaced */
    uint32_t uid, gid, mode;
    bool owner_set, mode_set;
};

/* -EINVAL with a sentence; unknown keys too. */
int settings_set(struct volume_settings *s, const char *key, const char *value, char why[256]);

/* A sentence that says why nobody can write in the volume's root and the command that helps; "" if somebody
 * can. */
void settings_nobody_writes(const struct volume_settings *s, char to[512]);

#endif
