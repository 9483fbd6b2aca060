#include "admin/commands.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "admin/events.h"
#include "sluice/base_metrics.h"
#include "sluice/base_text.h"

const struct options *commands_options;
time_t commands_started;
const struct store_cred root_cred = {0};

struct command {
    const char *name;
    json_t *(*run)(struct request *r);
    const char *arguments; /* the keys that it knows, each with a space on both sides */
};

#define LIMITS " bandwidth read-bandwidth write-bandwidth iops read-iops write-iops burst "

static const struct command commands[] = {
    {"status", command_status, " "},
    {"metrics", command_metrics, " "},
    {"stats", command_stats, " name "},
    {"clients", command_clients, " "},
    {"clients-evict", command_clients_evict, " client "},
    {"activity", command_activity, " "},
    {"events", command_events, " last "},
    {"settle", command_settle, " "},
    {"volume-create", command_volume_create, " name size files allow squash owner mode tier "},
    {"volume-list", command_volume_list, " deleted "},
    {"volume-show", command_volume_show, " name "},
    {"volume-set", command_volume_set, " name set "},
    {"volume-rename", command_volume_rename, " name to "},
    {"volume-delete", command_volume_delete, " name now "},
    {"volume-undelete", command_volume_undelete, " name to "},
    {"snapshot-create", command_snapshot_create, " name lock "},
    {"snapshot-list", command_snapshot_list, " name "},
    {"snapshot-delete", command_snapshot_delete, " names older "},
    {"snapshot-rename", command_snapshot_rename, " name to "},
    {"snapshot-lock", command_snapshot_lock, " name until "},
    {"policy-create", command_policy_create, " name keep "},
    {"policy-change", command_policy_change, " name keep "},
    {"policy-list", command_policy_list, " "},
    {"policy-delete", command_policy_delete, " name "},
    {"tier-create", command_tier_create, " name" LIMITS},
    {"tier-set", command_tier_set, " name" LIMITS},
    {"tier-list", command_tier_list, " "},
    {"tier-delete", command_tier_delete, " name "},
    {"diff", command_diff, " name to "},
    {"restore", command_restore, " name safety "},
    {"clone-split", command_clone_split, " name pause wait "},
    {"clone-create", command_clone_create, " name to writable "},
    {"access-check", command_access_check, " name address uid "},
    {"mount-command", command_mount, " name server "},
    {"ls", command_ls, " name path path_hex "},
    {"cat", command_cat, " name path path_hex "},
    {"pool-check", command_pool_check, " data rate "},
    {"pool-scrub", command_pool_scrub, " rate "},
    {"import", command_import, " name from from_hex to to_hex "},
    {"warm", command_warm, " name path path_hex list ahead "},
};

/* Those that change nothing an admin has made; all others are events when they have succeeded. */
static const char only_look[] = " status metrics stats clients activity events settle volume-list volume-show "
                                "snapshot-list policy-list tier-list diff access-check mount-command ls cat "
                                "pool-check pool-scrub warm ";

static bool lists(const char *words, const char *key)
{
    size_t length = strlen(key);
    for (const char *at = words; (at = strstr(at, key)); at++)
        if (at[-1] == ' ' && at[length] == ' ')
            return true;
    return false;
}

/* Arguments are texts, but for these; one of another type would be taken for one that is not there. */
static const struct {
    const char *keys, *what;
    json_type type, other;
} types[] = {
    {" deleted now safety pause wait writable data list ", "true or false", JSON_TRUE, JSON_FALSE},
    {" last ", "a whole number", JSON_INTEGER, JSON_INTEGER},
    {" names set ", "a list", JSON_ARRAY, JSON_ARRAY},
    {" ", "a text", JSON_STRING, JSON_STRING},
};
enum { TYPES = sizeof types / sizeof types[0] };

/* Bytes of a name that is not UTF-8, none of them 0. */
static bool is_hex(const char *text)
{
    size_t i = 0;
    for (; isxdigit((unsigned char)text[i]) && isxdigit((unsigned char)text[i + 1]); i += 2)
        if (text[i] == '0' && text[i + 1] == '0')
            return false;
    return text[i] == 0;
}

static json_t *check_value(const char *key, const json_t *value)
{
    size_t i = 0, length = strlen(key);
    while (i + 1 < TYPES && !lists(types[i].keys, key))
        i++;
    if (json_typeof(value) != types[i].type && json_typeof(value) != types[i].other)
        return request_error(-EINVAL, "%s: right would be %s", key, types[i].what);
    if (length > 4 && strcmp(key + length - 4, "_hex") == 0 && !is_hex(json_string_value(value)))
        return request_error(-EINVAL, "%s: right would be two hexadecimal digits for each byte, none 00", key);
    return NULL;
}

static json_t *check_arguments(const struct command *command, const json_t *args)
{
    const char *key;
    json_t *value, *answer = NULL;
    json_object_foreach ((json_t *)args, key, value) {
        if (strcmp(key, "command") == 0)
            continue;
        if (!*key || strchr(key, ' ') || !lists(command->arguments, key))
            return request_error(-EINVAL, "%s has no argument '%.80s'; its arguments are:%s", command->name, key,
                                 command->arguments);
        if ((answer = check_value(key, value)))
            break;
    }
    return answer;
}

static json_t *run(const struct command *command, struct request *r)
{
    json_t *answer = check_arguments(command, r->args);
    if (answer)
        return answer;
    answer = command->run(r);
    if (!lists(only_look, command->name) && answer && !json_is_false(json_object_get(answer, "ok")))
        events_record(r->uid, command->name, r->args);
    return answer;
}

json_t *command_run(struct request *r)
{
    const char *name = request_text(r, "command");
    for (size_t i = 0; name && i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, name) == 0)
            return run(&commands[i], r);
    if (!name)
        return request_error(-EINVAL, "the request has no \"command\"; right would be {\"command\":\"status\"}");
    return request_error(-EINVAL, "unknown command '%.80s'", name);
}

const char *request_text(const struct request *r, const char *key)
{
    return json_string_value(json_object_get(r->args, key));
}

int volume_copy(struct volume_copy *to, const struct volume_info *info)
{
    const struct volume_config *config = info->config;
    *to = (struct volume_copy){
        .tree = info->tree, .origin = info->origin, .created = info->created, .config = *config};
    to->config.rules = calloc(config->rule_count + 1, sizeof *config->rules);
    if (!to->config.rules)
        return -ENOMEM;
    if (config->rule_count)
        memcpy(to->config.rules, config->rules, config->rule_count * sizeof *config->rules);
    return 0;
}

json_t *request_tree(const struct request *r, const char *key, uint32_t *tree)
{
    const char *name = request_text(r, key);
    struct volume_copy v;
    uint32_t volume;
    if (name && strchr(name, '@'))
        return snapshot_find(name, &volume, tree);
    json_t *answer = request_volume(r, key, &v);
    if (answer)
        return answer;
    free(v.config.rules);
    *tree = v.tree;
    return NULL;
}

struct search {
    const char *name; /* NULL: by tree */
    uint32_t tree;
    struct volume_copy *out;
};

static int copy_if_it(void *arg, const struct volume_info *info)
{
    struct search *search = arg;
    if (search->name ? strcmp(info->config->name, search->name) != 0 : info->tree != search->tree)
        return 0;
    int error = volume_copy(search->out, info);
    return error ? error : -EEXIST;
}

json_t *volume_copy_of(uint32_t tree, struct volume_copy *out)
{
    struct search search = {.tree = tree, .out = out};
    int found = volume_each(copy_if_it, &search);
    if (found == -EEXIST)
        return NULL;
    return request_error(found ? found : -ESTALE, found ? "no memory" : "the volume is not there any more");
}

static int look(void *arg, const struct volume_info *info)
{
    text_nearest_look(arg, info->config->name);
    return 0;
}

json_t *request_volume(const struct request *r, const char *key, struct volume_copy *out)
{
    struct search search = {.name = request_text(r, key), .out = out};
    if (!search.name)
        return request_error(-EINVAL, "the request has no \"%s\", which names the volume", key);
    int found = volume_each(copy_if_it, &search);
    if (found == -EEXIST)
        return NULL;
    if (found == -ENOMEM)
        return request_error(found, "no memory");
    struct text_nearest nearest = {.word = search.name};
    volume_each(look, &nearest);
    const char *meant = text_nearest(&nearest);
    return request_error(-ENOENT, "there is no volume '%.80s'; %s%s%ssluice volume list shows those there are",
                         search.name, *meant ? "did you mean '" : "", meant, *meant ? "'? " : "");
}

json_t *command_metrics(struct request *r)
{
    json_t *values = json_object();
    for (unsigned i = 0; i < METRIC_COUNT; i++)
        json_object_set_new(values, metric_names[i],
                            json_pack("{s:I, s:s}", "value", (json_int_t)metric_read(i), "help",
                                      metric_helps[i]));
    return json_pack("{s:o}", "metrics", values);
}

json_t *command_events(struct request *r)
{
    enum { MOST = 10000, DEFAULT = 50 };
    const json_t *last = json_object_get(r->args, "last");
    json_int_t most = last ? json_integer_value(last) : DEFAULT;
    if (most < 1 || most > MOST)
        return request_error(-EINVAL, "last: from 1 to %d events can be shown", MOST);
    json_t *events = events_last((unsigned)most);
    return events ? json_pack("{s:o}", "events", events) : request_error(-ENOMEM, "no memory");
}

json_t *command_settle(struct request *r)
{
    struct store *s = volume_store();
    int error = s->ops->settle(s);
    if (error)
        return request_error(error, "background work did not end: %s", sl_strerror(error));
    return json_object();
}
