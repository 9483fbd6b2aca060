#include "cli/cli.h"

static int send_policy(const struct cli *cli, const char *command)
{
    json_t *request = json_pack("{s:s, s:s}", "command", command, "name", cli->words[0]);
    if (request && cli->given[OPTION_keep])
        json_object_set_new(request, "keep", json_string(cli->given[OPTION_keep]));
    return ask_and_show(cli, request, NULL);
}

int cli_policy_create(const struct cli *cli)
{
    return send_policy(cli, "policy-create");
}

int cli_policy_change(const struct cli *cli)
{
    return send_policy(cli, "policy-change");
}

int cli_policy_delete(const struct cli *cli)
{
    return send_policy(cli, "policy-delete");
}

static void show_policies(const json_t *answer)
{
    json_t *p;
    size_t i;
    printf("%-24s %s\n", "NAME", "KEEPS (times are UTC)");
    json_array_foreach (json_object_get(answer, "policies"), i, p)
        printf("%-24s %s\n", text_of(p, "name"), *text_of(p, "keep") ? text_of(p, "keep") : "nothing");
}

int cli_policy_list(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s}", "command", "policy-list"), show_policies);
}

int cli_policy_set(const struct cli *cli)
{
    char text[96];
    snprintf(text, sizeof text, "policy=%.80s", cli->words[1]);
    json_t *request = json_pack("{s:s, s:s, s:[s]}", "command", "volume-set", "name", cli->words[0], "set", text);
    return ask_and_show(cli, request, NULL);
}
