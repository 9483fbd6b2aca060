#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "sluice/base_text.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "0.1"
#endif

#define LIMITS "[--bandwidth RATE] [--iops RATE] [--burst TIME] [--read-bandwidth RATE] [--write-bandwidth RATE] " \
               "[--read-iops RATE] [--write-iops RATE]"
#define LIMIT_OPTIONS " bandwidth read_bandwidth write_bandwidth iops read_iops write_iops burst "

static const struct cli_command commands[] = {
    {"status", "", "Shows the server: pool, space, cache, clients, procedures", 0, 0, " ", .run = cli_status},
    {"volume create", "NAME [--size SIZE] [--files COUNT] [--allow RULES] [--squash root|none|all] [--owner UID:GID] "
     "[--mode MODE] [--tier NAME]", "Makes a volume; this host alone may mount it unless --allow says more", 1, 1,
     " size files allow squash owner mode tier ", .run = cli_volume_create,
     .more = "host is this machine by all its addresses, and its root stays root. A rule without :ro is :rw."},
    {"volume list", "[--deleted]", "Lists the volumes", 0, 0, " deleted ", .run = cli_volume_list},
    {"volume show", "NAME", "Shows a volume's settings and what it holds", 1, 1, " ", .run = cli_volume_show},
    {"volume set", "NAME KEY=VALUE...", "Changes a volume's settings; all of them or, if one is wrong, none", 2, 64,
     " ", .run = cli_volume_set,
     .keys = " size files snapshot_reserve allow squash groups owner mode writable show_snapshots policy "
     "tier bandwidth read_bandwidth write_bandwidth iops read_iops write_iops burst min_bandwidth ",
     .more = "Clients that have it mounted notice at once. cache=auto|lru|epoch says what stays in RAM when it is "
             "full: epoch is for data read once an epoch in a new order, auto finds out. cache-share=40%, =64Gi or "
             "=none is the most RAM it may take. Limits of the volume's own stand in the place of its tier's; none "
             "takes one away, and tier= all of them."},
    {"volume rename", "NAME NEW", "Renames a volume; clients that have it mounted go on", 2, 2, " ",
     .run = cli_volume_rename},
    {"volume delete", "NAME [--now] [--yes]", "Deletes a volume with its snapshots; it is kept for a day", 1, 1,
     " now yes ", .run = cli_volume_delete},
    {"volume undelete", "NAME [NEW]", "Brings a deleted volume back", 1, 2, " ", .run = cli_volume_undelete},
    {"snapshot create", "VOL[,VOL...][@NAME] [--lock DATE]", "Takes a snapshot, of all these volumes at one instant; "
     "without a name the time is its name", 1, 1, " lock ", .run = cli_snapshot_create,
     .more = "It holds what had been acknowledged, and takes no time and no space. When the command returns it is "
             "durable. Clients mount it as server:/VOL@NAME or find it in .snapshot/NAME of any directory."},
    {"snapshot list", "VOL", "Lists a volume's snapshots", 1, 1, " ", .run = cli_snapshot_list,
     .more = "USED is what it refers to, HELD what its deletion would give back."},
    {"snapshot delete", "VOL@NAME... [--older AGE]", "Deletes snapshots; NAME may be a pattern such as 'hourly.*'", 1,
     64, " older ", .run = cli_snapshot_delete,
     .more = "With --older VOL alone means all its snapshots. Clones live on without their origin."},
    {"snapshot rename", "VOL@NAME NEW", "Renames a snapshot", 2, 2, " ", .run = cli_snapshot_rename},
    {"snapshot lock", "VOL@NAME --until DATE", "Keeps a snapshot, and its volume, from being deleted until then", 1, 1,
     " until ", .run = cli_snapshot_lock, .more = "A lock can be made longer, not shorter."},
    {"snapshot diff", "VOL@A [VOL@B]", "Shows the paths that differ: + created, ~ changed, - removed, > renamed", 1, 2,
     " ", .run = cli_diff,
     .more = "Without a second snapshot, against the volume as it is now. It takes time for what differs, not for what "
             "is the same."},
    {"restore", "VOL@NAME [--no-safety]", "Puts a volume back to one of its snapshots, in an instant", 1, 1,
     " no_safety ", .run = cli_restore,
     .more = "Clients that have it mounted go on; files that the snapshot does not have are stale for them. What the "
             "volume held becomes a snapshot of its own first."},
    {"clone split", "NAME [--background] [--pause]", "Gives a clone its own copy of the data that it shares", 1, 1,
     " background pause ", .run = cli_clone_split,
     .more = "The server copies in the background, also after a restart, and leaves half of the time to clients; ^C "
             "ends only the watching. A clone needs no origin to live: this is for space that is to be counted apart."},
    {"clone create", "VOL@NAME NEW [--writable]", "Makes a volume out of a snapshot, in an instant", 2, 2, " writable ",
     .run = cli_clone_create,
     .more = "It shares the snapshot's data, on disk and in RAM, and begins with the volume's rules, squash and size, "
             "and without limits of speed."},
    {"policy create", "NAME --keep WHAT", "Makes a policy: which snapshots are taken by themselves and kept", 1, 1,
     " keep ", .run = cli_policy_create,
     .more = "The oldest of its kind goes first; snapshots made by hand are never deleted. What was missed while the "
             "server was down is taken once when it starts."},
    {"policy list", "", "Lists the policies", 0, 0, " ", .run = cli_policy_list},
    {"policy change", "NAME --keep WHAT", "Changes a policy, for all volumes that have it", 1, 1, " keep ",
     .run = cli_policy_change},
    {"policy delete", "NAME", "Deletes a policy that no volume has", 1, 1, " ", .run = cli_policy_delete},
    {"policy set", "VOL NAME", "Gives a volume a policy: default, none or one of yours", 2, 2, " ",
     .run = cli_policy_set},
    {"tier create", "NAME " LIMITS, "Makes a tier: limits by a name, for as many volumes as are put into it", 1, 1,
     LIMIT_OPTIONS, .run = cli_tier_create,
     .more = "The limits hold for each volume in it, over all its clients. What is per TiB follows the volume's size, "
             "and comes to at least 1Mi/s and 100 operations a second. sluice volume set VOL tier=NAME puts a volume "
             "into it."},
    {"tier list", "", "Lists the tiers with their limits", 0, 0, " ", .run = cli_tier_list},
    {"tier set", "NAME " LIMITS, "Changes a tier, for all its volumes at once", 1, 1, LIMIT_OPTIONS,
     .run = cli_tier_set,
     .more = "What is not named stays; none takes a limit away. Calls that wait go by the new limits."},
    {"tier delete", "NAME", "Deletes a tier that no volume is in", 1, 1, " ", .run = cli_tier_delete},
    {"access check", "VOLUME ADDRESS [UID]", "Tells what a client of that address would get, and by which rule", 2, 3,
     " ", .run = cli_access_check},
    {"import", "VOLUME DIR [--to PATH]", "Copies a directory of the server's machine into a volume; run again, "
     "it goes on where it was", 2, 2, " to ", .run = cli_import,
     .more = "The server itself reads DIR. Modes, owners, times, links and holes are kept. A file that is there with "
             "the same size and time is left alone. What cannot be read is named, and the exit code is 1 then."},
    {"warm", "VOLUME [PATH | --list FILE [--ahead SIZE]]", "Loads a tree into the server's RAM, or a list of files "
     "in the order they will be read, ahead of the reader", 1, 2, " list ahead ", .run = cli_warm,
     .more = "A list has one name a line, from the volume's root. What the reader has read makes room for more of it; "
             "the command ends when all is loaded, or with ^C. Names that do not exist are counted, and the exit code "
             "is 1 then."},
    {"ls", "VOLUME[:/PATH]", "Lists a directory of a volume, without a mount", 1, 1, " ", .run = cli_ls},
    {"cat", "VOLUME:/PATH", "Prints a file of a volume, without a mount", 1, 1, " ", .run = cli_cat},
    {"mount-command", "VOLUME [--server HOST]", "Prints the commands that mount a volume", 1, 1, " server ",
     .run = cli_mount_command, .more = "To be pasted on the client, as root: the mount, and its read-ahead."},
    {"pool check", "[--data] [--rate RATE] [DIR]", "Checks what a pool's records say of each other, of a running "
     "server or of the stopped pool DIR", 0, 1, " data rate ", .run = cli_pool_check,
     .more = "It changes nothing and lets clients go first. Each thing that is wrong is a line: where it is, what it "
             "is, what to do; the exit code is 1 then."},
    {"pool scrub", "[--rate RATE]", "Reads all data of a running pool and compares them with their checksums", 0, 0,
     " rate ", .run = cli_pool_scrub,
     .more = "Clients go first. Damaged files are named with their volume or snapshot, and the exit code is 1 then. "
             "^C stops it."},
    {"pool compact", "DIR", "Makes a stopped pool's metadata as small as it can be", 0, 1, " ", .run = cli_pool_compact,
     .more = "A crash in the middle leaves it as it was. There must be room for a copy of what is in use."},
    {"top", "[--sort BY] [--once] [--interval SECONDS]", "Shows what goes on, on a screen that renews itself", 0, 0,
     " sort once interval ", .run = cli_top,
     .more = "Volumes and connected clients: operations and bytes a second, the mean latency, how long calls waited at "
             "the gate for their turn under the volume's limits, and how much of what was read was in RAM. The keys at "
             "the foot change the order; q ends it."},
    {"stats", "VOL", "Shows what a volume's clients have asked for since the server started", 1, 1, " ",
     .run = cli_stats,
     .more = "Latency is from the arrival of a call until its reply is handed to the socket; median and p99 are "
             "estimated from buckets that double."},
    {"clients evict", "CLIENT", "Ends all that an NFSv4 client has open, locked and delegated", 1, 1, " ",
     .run = cli_clients_evict,
     .more = "CLIENT is its number, as sluice clients shows it, or an address: then all clients there. Others may have "
             "at once what it held, and it may not reclaim it. A client that still runs comes again by itself, and its "
             "programs lose their locks; to keep it out, change the volume's rules first."},
    {"clients", "[--all]", "Lists connected clients: what they use and what they have done; and NFSv4's, with what "
     "they hold", 0, 0, " all ", .run = cli_clients,
     .more = "RENEWED is how long ago an NFSv4 client was last heard of. One that is silent for longer than nfs-lease "
             "keeps what it has until another client needs it."},
    {"events", "[--last N]", "Lists what admins have changed, and when", 0, 0, " last ", .run = cli_events},
    {"metrics", "", "Shows every counter", 0, 0, " ", .run = cli_metrics},
    {"settle", "", "Waits until background work is done", 0, 0, " ", .run = cli_settle},
};
enum { COMMANDS = sizeof commands / sizeof commands[0], HELP_COLUMN = 23 };

static const char *const option_names[] = {
#define CLI_NAME(key, value, help) #key,
    CLI_OPTIONS(CLI_NAME)
#undef CLI_NAME
};
enum { NAME_ROOM = 32 };

/* As people type it: with dashes. */
static const char *dashed(char to[NAME_ROOM], int option)
{
    snprintf(to, NAME_ROOM, "%s", option_names[option]);
    for (char *at = to; (at = strchr(at, '_'));)
        *at = '-';
    return to;
}

static const struct {
    const char *value, *help;
} option_texts[] = {
#define CLI_TEXT(key, value, help) {value, help},
    CLI_OPTIONS(CLI_TEXT)
#undef CLI_TEXT
};

/* ---- help ---- */

static void print_option(FILE *to, int option)
{
    char name[64], left[80], plain[NAME_ROOM];
    const char *value = option_texts[option].value;
    snprintf(name, sizeof name, "--%s%s%s", dashed(plain, option), value ? " " : "", value ? value : "");
    snprintf(left, sizeof left, "  %-20s ", name);
    show_wrapped(to, left, HELP_COLUMN, option_texts[option].help, NULL);
}

static void print_key(FILE *to, int option)
{
    char name[64], left[80], plain[NAME_ROOM];
    const char *value = option_texts[option].value;
    snprintf(name, sizeof name, "%s=%s", dashed(plain, option), value ? value : "yes|no");
    snprintf(left, sizeof left, "  %-20s ", name);
    show_wrapped(to, left, HELP_COLUMN, option_texts[option].help, NULL);
}

static void print_all(FILE *to)
{
    fputs("sluice: manages a running sluiced\n\nusage: sluice COMMAND [OPTION]...\n\n", to);
    for (int i = 0; i < COMMANDS; i++) {
        char left[80];
        snprintf(left, sizeof left, "  %-20s ", commands[i].name);
        show_wrapped(to, left, HELP_COLUMN, commands[i].help, NULL);
    }
    fputs("\nsluice help COMMAND shows more. Options of every command:\n", to);
    for (int i = OPTION_json; i <= OPTION_version; i++)
        print_option(to, i);
    fputs("\nWithout --socket and --pool: SLUICE_SOCKET, SLUICE_POOL, /run/sluice/control.sock.\n"
          "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 no server.\n", to);
}

static bool lists(const char *names, int option)
{
    char key[32];
    snprintf(key, sizeof key, " %s ", option_names[option]);
    return names && strstr(names, key);
}

static bool takes(const struct cli_command *command, int option)
{
    return option <= OPTION_help || lists(command->options, option);
}

static void print_usage(FILE *to, const char *before, const struct cli_command *command)
{
    char first[64];
    snprintf(first, sizeof first, "%ssluice %s%s", before, command->name, *command->usage ? " " : "");
    show_wrapped(to, first, (int)strlen(first), command->usage, "]");
}

static void print_command(FILE *to, const struct cli_command *command)
{
    print_usage(to, "usage: ", command);
    fputc('\n', to);
    fprintf(to, "%s.\n", command->help);
    if (command->more)
        show_wrapped(to, "", 0, command->more, NULL);
    fputc('\n', to);
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (lists(command->options, i))
            print_option(to, i);
        else if (lists(command->keys, i))
            print_key(to, i);
    }
    for (int i = 0; i <= OPTION_help; i++)
        print_option(to, i);
}

/* ---- words and options ---- */

/* The command that the words begin with; *used: how many words its name has. */
static const struct cli_command *find_command(int count, char **words, int *used)
{
    for (int i = 0; i < COMMANDS; i++) {
        const char *space = strchr(commands[i].name, ' ');
        size_t first = space ? (size_t)(space - commands[i].name) : strlen(commands[i].name);
        *used = space ? 2 : 1;
        if (count >= *used && strlen(words[0]) == first && memcmp(words[0], commands[i].name, first) == 0 &&
            (!space || strcmp(words[1], space + 1) == 0))
            return &commands[i];
    }
    return NULL;
}

/* "volume what?": lists the second words that there are. */
static bool complain_second(int count, char **words)
{
    char rest[512] = "";
    size_t first = strlen(words[0]);
    for (int i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i].name, words[0], first) == 0 && commands[i].name[first] == ' ') {
            size_t used = strlen(rest);
            snprintf(rest + used, sizeof rest - used, "%s%s", used ? ", " : "", commands[i].name + first + 1);
        }
    if (*rest)
        cli_complain("%s %s: right would be one of %s", words[0], count > 1 ? words[1] : "what?", rest);
    return *rest;
}

static int unknown_command(int count, char **words)
{
    if (count == 0)
        print_all(stderr);
    else if (!complain_second(count, words)) {
        struct text_nearest nearest = {.word = words[0]};
        char first[NAME_ROOM];
        for (int i = 0; i < COMMANDS; i++) {
            snprintf(first, sizeof first, "%.*s", (int)strcspn(commands[i].name, " "), commands[i].name);
            text_nearest_look(&nearest, first);
        }
        const char *meant = text_nearest(&nearest);
        cli_complain("unknown command '%s'; %s%s%ssluice help lists them", words[0], *meant ? "did you mean '" : "",
                     meant, *meant ? "'? " : "");
    }
    return EXIT_USAGE;
}

static int scan(int argc, char **argv, struct cli *cli)
{
    struct option known[OPTION_COUNT + 1] = {0};
    char names[OPTION_COUNT][NAME_ROOM];
    for (int i = 0; i < OPTION_COUNT; i++)
        known[i] = (struct option){dashed(names[i], i), option_texts[i].value ? required_argument : no_argument,
                                   NULL, i + 1000};
    opterr = 0;
    for (;;) {
        int at = optind;
        int found = getopt_long(argc, argv, ":h", known, NULL);
        if (found == -1)
            break;
        if (found == 'h')
            found = OPTION_help + 1000;
        if (found < 1000) {
            const char *word = optind > at || optind >= argc ? argv[optind - 1] : argv[optind];
            cli_complain(found == ':' ? "%s wants a value after it" : "unknown option %s; sluice help lists them",
                         word);
            return EXIT_USAGE;
        }
        cli->given[found - 1000] = optarg ? optarg : "";
    }
    cli->words = argv + optind;
    cli->word_count = argc - optind;
    return EXIT_DONE;
}

static int show_help(int count, char **words)
{
    int used;
    const struct cli_command *command = find_command(count, words, &used);
    bool some = false;
    if (command) {
        print_command(stdout, command);
        return EXIT_DONE;
    }
    for (int i = 0; count == 1 && i < COMMANDS; i++) {
        size_t length = strlen(words[0]);
        if (strncmp(commands[i].name, words[0], length) != 0 || commands[i].name[length] != ' ')
            continue;
        print_usage(stdout, "  ", &commands[i]);
        show_wrapped(stdout, "      ", 6, commands[i].help, NULL);
        some = true;
    }
    if (some)
        return EXIT_DONE;
    if (count)
        return unknown_command(count, words);
    print_all(stdout);
    return EXIT_DONE;
}

static int run(struct cli *cli, const struct cli_command *command, int used)
{
    char name[NAME_ROOM];
    for (int i = 0; i < OPTION_COUNT; i++) {
        if (!cli->given[i] || takes(command, i))
            continue;
        cli_complain("%s does not take --%s", command->name, dashed(name, i));
        print_usage(stderr, "usage: ", command);
        return EXIT_USAGE;
    }
    cli->words += used;
    cli->word_count -= used;
    if (cli->word_count < command->least || cli->word_count > command->most) {
        if (cli->word_count > command->most)
            cli_complain("%s: one word too many: '%s'", command->name, cli->words[command->most]);
        else
            cli_complain("%s: a word is missing", command->name);
        print_usage(stderr, "usage: ", command);
        return EXIT_USAGE;
    }
    return command->run(cli);
}

int main(int argc, char **argv)
{
    struct cli cli = {0};
    int used, code = scan(argc, argv, &cli);
    if (code)
        return code;
    if (cli.given[OPTION_version]) {
        puts("sluice " SLUICE_VERSION);
        return EXIT_DONE;
    }
    bool word_help = cli.word_count && strcmp(cli.words[0], "help") == 0;
    if (cli.given[OPTION_help] || word_help)
        return show_help(cli.word_count - word_help, cli.words + word_help);
    const struct cli_command *command = find_command(cli.word_count, cli.words, &used);
    return command ? run(&cli, command, used) : unknown_command(cli.word_count, cli.words);
}
