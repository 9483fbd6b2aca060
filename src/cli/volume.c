#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli/cli.h"
#include "sluice/base_config.h"
#include "sluice/base_date.h"

static json_t *command(const char *name, const char *volume)
{
    return json_pack("{s:s, s:s}", "command", name, "name", volume);
}

static const char *size_text(const json_t *volume, char to[32])
{
    long long size = number_of(volume, "size");
    return size ? size_exact((uint64_t)size, to) : "none";
}

static void show_cache(const json_t *v)
{
    const char *policy = text_of(v, "cache"), *now = text_of(v, "cache_now");
    long long read = number_of(v, "cache_read_bytes"), disk = number_of(v, "cache_disk_bytes");
    char held[32], all[32];
    printf("cache     %s%s%s", policy, strcmp(policy, now) && *now ? ", at present as " : "",
           strcmp(policy, now) ? now : "");
    if (strcmp(text_of(v, "cache_share"), "none"))
        printf(", at most %s", text_of(v, "cache_share"));
    printf("\nin RAM    %s", bytes_text(held, (uint64_t)number_of(v, "cache_held_bytes")));
    if (read)
        printf("; %.1f%% of %s read since the start came from RAM", disk < read ? 100.0 * (read - disk) / read : 0,
               bytes_text(all, (uint64_t)read));
    putchar('\n');
}

/* "64Mi/s", "none" */
static const char *rate_text(const json_t *limits, const char *key, char to[48])
{
    enum { PLAIN = 7 };
    static const char units[] = "kMGT";
    char text[SIZE_TEXT];
    long long rate = number_of(limits, key);
    if (strlen(size_exact((uint64_t)rate, text)) > PLAIN) { /* of a size in TiB */
        int unit = -1;
        double amount = (double)rate;
        for (; amount >= 1000 && unit < 3; unit++)
            amount /= 1000;
        snprintf(text, sizeof text, "%.4g%c", amount, units[unit]);
    }
    snprintf(to, 48, "%s%s", rate ? text : "none", rate && strstr(key, "bandwidth") ? "/s" : "");
    return to;
}

static void show_way(const json_t *limits, const char *name, const char *bandwidth, const char *iops)
{
    char a[48], b[48];
    if (number_of(limits, bandwidth) || number_of(limits, iops))
        printf("          %s: bandwidth %s, iops %s\n", name, rate_text(limits, bandwidth, a),
               rate_text(limits, iops, b));
}

static void show_tier(const json_t *v)
{
    const json_t *own = json_object_get(v, "own_limits"), *limits = json_object_get(v, "limits");
    char a[48], b[48];
    printf("tier      %s", text_of(v, "tier"));
    if (json_object_size(own)) {
        printf("; its own: ");
        show_limits(own, "");
    }
    printf("\nlimits    bandwidth %s, iops %s", rate_text(limits, "bandwidth", a), rate_text(limits, "iops", b));
    if (number_of(limits, "min_bandwidth"))
        printf(", at least %s", rate_text(limits, "min_bandwidth", a));
    if (number_of(limits, "burst_ms") != 100)
        printf(", burst %lld ms", number_of(limits, "burst_ms"));
    putchar('\n');
    show_way(limits, "reads", "read_bandwidth", "read_iops");
    show_way(limits, "writes", "write_bandwidth", "write_iops");
}

static void show_snapshots(const json_t *v)
{
    char count[48], held[32], reserve[32];
    printf("snapshots %s", count_text(count, number_of(v, "snapshots"), "snapshot"));
    if (json_object_get(v, "snapshots_held_bytes"))
        printf(" holding %s more", bytes_text(held, (uint64_t)number_of(v, "snapshots_held_bytes")));
    long long room = number_of(v, "snapshot_reserve_bytes");
    bool beyond = number_of(v, "snapshots_held_bytes") > room;
    if (room)
        printf(", %s %s", beyond ? "beyond the reserve of" : "reserve", bytes_text(reserve, (uint64_t)room));
    printf(", policy %s%s\n", text_of(v, "policy"),
           json_is_true(json_object_get(v, "show_snapshots")) ? ", .snapshot is shown" : "");
}

/* One a line: the first that matches wins. */
static void show_rules(const char *rules)
{
    const char *title = "allow    ";
    if (!*rules)
        printf("%s none\n", title);
    while (*rules) {
        size_t length = strcspn(rules, ",");
        printf("%s %.*s\n", title, (int)length, rules);
        rules += length + (rules[length] == ',');
        title = "         ";
    }
}

static void show_volume(const json_t *answer)
{
    const json_t *v = json_object_get(answer, "volume");
    char size[32], used[32], available[32], objects[48], created[64];
    time_t when = (time_t)number_of(v, "created");
    struct tm parts;
    strftime(created, sizeof created, "%Y-%m-%d %H:%M:%S %z", localtime_r(&when, &parts));
    printf("name      %s\n", text_of(v, "name"));
    printf("size      %s", *size_text(v, size) == 'n' ? "no limit" : size);
    if (number_of(v, "files_limit"))
        printf(", at most %s", count_text(objects, number_of(v, "files_limit"), "object"));
    printf("\nused      %s in %s, %s available\n", bytes_text(used, (uint64_t)number_of(v, "bytes_used")),
           count_text(objects, number_of(v, "files"), "object"),
           bytes_text(available, (uint64_t)number_of(v, "bytes_available")));
    show_rules(text_of(v, "allow"));
    printf("squash    %s\n", text_of(v, "squash"));
    printf("groups    %s\n", *text_of(v, "groups") == 's' ? "server: by the server's name service"
                                                           : "client: as its calls say");
    printf("owner     %s, mode %s\n", text_of(v, "owner"), text_of(v, "mode"));
    show_cache(v);
    show_tier(v);
    printf("created   %s\n", created);
    if (json_object_get(v, "origin"))
        printf("clone of  %s\n", text_of(v, "origin"));
    if (!json_is_true(json_object_get(v, "writable")))
        printf("read-only; sluice volume set %s writable=yes changes that\n", text_of(v, "name"));
    show_snapshots(v);
    printf("number    %lld\n", number_of(v, "number"));
}

static void show_list(const json_t *answer)
{
    size_t i;
    json_t *v;
    const json_t *all = json_object_get(answer, "volumes");
    if (!json_array_size(all)) {
        printf("no volumes yet; sluice volume create NAME makes one\n");
        return;
    }
    printf("%-24s %8s %8s %10s %-10s %-6s %s\n", "NAME", "SIZE", "USED", "OBJECTS", "TIER", "SQUASH", "ALLOW");
    json_array_foreach (all, i, v) {
        char size[32], used[32];
        printf("%-24s %8s %8s %10lld %-10s %-6s %s\n", text_of(v, "name"), size_text(v, size),
               bytes_text(used, (uint64_t)number_of(v, "bytes_used")), number_of(v, "files"),
               text_of(v, "tier"), text_of(v, "squash"), *text_of(v, "allow") ? text_of(v, "allow") : "none");
    }
}

static void show_created(const json_t *answer)
{
    printf("volume %s created; sluice mount-command %s prints how to mount it\n"
           "no snapshots are taken by themselves; sluice policy set %s default changes that\n", text_of(answer, "name"),
           text_of(answer, "name"), text_of(answer, "name"));
}

static void add(json_t *request, const struct cli *cli, enum cli_option option, const char *key)
{
    if (cli->given[option])
        json_object_set_new(request, key, json_string(cli->given[option]));
}

int cli_volume_create(const struct cli *cli)
{
    json_t *request = command("volume-create", cli->words[0]);
    add(request, cli, OPTION_size, "size");
    add(request, cli, OPTION_files, "files");
    add(request, cli, OPTION_allow, "allow");
    add(request, cli, OPTION_squash, "squash");
    add(request, cli, OPTION_owner, "owner");
    add(request, cli, OPTION_mode, "mode");
    add(request, cli, OPTION_tier, "tier");
    return ask_and_show(cli, request, show_created);
}

static void show_deleted(const json_t *answer)
{
    size_t i;
    json_t *v;
    const json_t *all = json_object_get(answer, "volumes");
    if (!json_array_size(all))
        printf("no deleted volumes\n");
    json_array_foreach (all, i, v) {
        char when[DATE_TEXT];
        date_format(number_of(v, "deleted"), when);
        printf("%-24s deleted %s; sluice volume undelete %s brings it back\n", text_of(v, "name"), when,
               text_of(v, "name"));
    }
}

int cli_volume_list(const struct cli *cli)
{
    bool deleted = cli->given[OPTION_deleted] != NULL;
    return ask_and_show(cli, json_pack("{s:s, s:b}", "command", "volume-list", "deleted", deleted),
                        deleted ? show_deleted : show_list);
}

int cli_volume_show(const struct cli *cli)
{
    return ask_and_show(cli, command("volume-show", cli->words[0]), show_volume);
}

int cli_volume_set(const struct cli *cli)
{
    json_t *request = command("volume-set", cli->words[0]), *set = json_array();
    for (int i = 1; i < cli->word_count; i++)
        json_array_append_new(set, json_string(cli->words[i]));
    if (request)
        json_object_set_new(request, "set", set);
    return ask_and_show(cli, request, NULL);
}

int cli_volume_rename(const struct cli *cli)
{
    return ask_and_show(cli, json_pack("{s:s, s:s, s:s}", "command", "volume-rename", "name", cli->words[0],
                                       "to", cli->words[1]), NULL);
}

static void show_kept(const json_t *answer)
{
    printf("deleted; for a day sluice volume undelete brings it back\n");
}

static bool typed_again(const char *name, bool now)
{
    char line[256];
    fprintf(stderr, "This deletes the volume %s and everything in it%s. Type its name to go on: ", name,
            now ? ", for good" : "");
    fflush(stderr);
    if (!fgets(line, sizeof line, stdin))
        line[0] = 0;
    if (!isatty(STDIN_FILENO) || !line[0])
        fputc('\n', stderr); /* nobody pressed Enter */
    line[strcspn(line, "\n")] = 0;
    return strcmp(line, name) == 0;
}

int cli_volume_delete(const struct cli *cli)
{
    json_t *answer;
    int code = client_ask(cli, command("volume-show", cli->words[0]), &answer);
    json_decref(answer);
    if (code)
        return code;
    if (!cli->given[OPTION_yes] && !typed_again(cli->words[0], cli->given[OPTION_now] != NULL)) {
        cli_complain("that is not its name; nothing was deleted (--yes deletes without asking)");
        return EXIT_FAILED;
    }
    json_t *request = command("volume-delete", cli->words[0]);
    if (request && cli->given[OPTION_now])
        json_object_set_new(request, "now", json_true());
    return ask_and_show(cli, request, cli->given[OPTION_now] ? NULL : show_kept);
}

int cli_volume_undelete(const struct cli *cli)
{
    json_t *request = command("volume-undelete", cli->words[0]);
    if (request && cli->word_count > 1)
        json_object_set_new(request, "to", json_string(cli->words[1]));
    return ask_and_show(cli, request, NULL);
}

static void show_mount(const json_t *answer)
{
    printf("%s\n%s\n", text_of(answer, "mount"), text_of(answer, "read_ahead"));
    if (json_object_get(answer, "mount_with_locks"))
        printf("# or, for locks that hold between nodes, NFSv4.2:\n%s\n", text_of(answer, "mount_with_locks"));
}

int cli_mount_command(const struct cli *cli)
{
    json_t *answer, *warning;
    json_t *request = command("mount-command", cli->words[0]);
    size_t i;
    add(request, cli, OPTION_server, "server");
    int code = client_ask(cli, request, &answer);
    if (code)
        return code;
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        show_mount(answer);
    json_array_foreach (json_object_get(answer, "warnings"), i, warning)
        if (!cli->given[OPTION_json])
            show_warning(json_string_value(warning));
    json_decref(answer);
    return EXIT_DONE;
}
