#include "cli/cli.h"

static void show_access(const json_t *a)
{
    const char *rule = text_of(a, "rule");
    bool allowed = json_is_true(json_object_get(a, "allowed")), write = json_is_true(json_object_get(a, "write"));
    bool all = json_is_true(json_object_get(a, "squash_all"));
    long long anon_uid = number_of(a, "anon_uid"), anon_gid = number_of(a, "anon_gid");
    if (!allowed) {
        printf("no access: %s\nthis would allow it: %s\n", "no rule matches this address", text_of(a, "remedy"));
        return;
    }
    printf("access    %s\n", write ? "read and write" : "read only");
    printf("rule      %lld: %s\n", number_of(a, "rule_number"), rule);
    if (json_is_true(json_object_get(a, "read_only_tree")))
        printf("          the rule says rw, but this is read-only\n");
    if (json_is_true(json_object_get(a, "privileged_port")))
        printf("port      only from ports below 1024: the client mounts as root, without noresvport\n");
    if (all)
        printf("squash    all: everyone acts as %lld:%lld\n", anon_uid, anon_gid);
    else if (json_is_true(json_object_get(a, "squash_root")))
        printf("squash    root acts as %lld:%lld\n", anon_uid, anon_gid);
    else
        printf("squash    none: root is root\n");
    if (json_object_get(a, "uid"))
        printf("uid %-5lld acts as %lld\n", number_of(a, "uid"), number_of(a, "acts_as"));
    const json_t *groups = json_object_get(a, "groups");
    if (!groups) {
        printf("groups    %s\n", json_is_true(json_object_get(a, "server_groups"))
                                     ? "by this server's name service; give a UID to see them"
                                     : "as the client's calls say, sixteen at most");
        return;
    }
    printf("groups   ");
    for (size_t i = 0; i < json_array_size(groups); i++)
        printf(" %lld", (long long)json_integer_value(json_array_get(groups, i)));
    puts(json_array_size(groups) ? "" : " as the client's calls say: the name service does not know the user");
}

int cli_access_check(const struct cli *cli)
{
    json_t *request = json_pack("{s:s, s:s, s:s}", "command", "access-check", "name", cli->words[0], "address",
                                cli->words[1]);
    if (request && cli->words[2])
        json_object_set_new(request, "uid", json_string(cli->words[2]));
    return ask_and_show(cli, request, show_access);
}
