#include <string.h>

#include "cli/cli.h"

static const struct {
    enum cli_option option;
    const char *key;
} limits[] = {{OPTION_bandwidth, "bandwidth"},
              {OPTION_read_bandwidth, "read-bandwidth"},
              {OPTION_write_bandwidth, "write-bandwidth"},
              {OPTION_iops, "iops"},
              {OPTION_read_iops, "read-iops"},
              {OPTION_write_iops, "write-iops"},
              {OPTION_burst, "burst"}};

static int send_tier(const struct cli *cli, const char *command)
{
    json_t *request = json_pack("{s:s, s:s}", "command", command, "name", cli->words[0]);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (request && cli->given[limits[i].option])
            json_object_set_new(request, limits[i].key, json_string(cli->given[limits[i].option]));
    return ask_and_show(cli, request, NULL);
}

int cli_tier_create(const struct cli *cli)
{
    return send_tier(cli, "tier-create");
}

int cli_tier_set(const struct cli *cli)
{
    return send_tier(cli, "tier-set");
}

int cli_tier_delete(const struct cli *cli)
{
    return send_tier(cli, "tier-delete");
}

void show_limits(const json_t *texts, const char *none)
{
    const char *key;
    json_t *text;
    bool any = false;
    json_object_foreach ((json_t *)texts, key, text) {
        printf("%s%s %s", any ? ", " : "", key, json_string_value(text));
        any = true;
    }
    if (!any)
        fputs(none, stdout);
}

static void show_tiers(const json_t *answer)
{
    json_t *t;
    size_t i;
    printf("%-24s %8s  %s\n", "NAME", "VOLUMES", "LIMITS");
    json_array_foreach (json_object_get(answer, "tiers"), i, t) {
        printf("%-24s %8lld  ", text_of(t, "name"), number_of(t, "volumes"));
        show_limits(json_object_get(t, "limits"), "none");
        puts(json_is_true(json_object_get(t, "built_in")) ? " (built in)" : "");
    }
}

int cli_tier_list(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s}", "command", "tier-list"), show_tiers);
}
