#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cli/cli.h"

#define DEFAULT_SOCKET "/run/sluice/control.sock"

static int find_socket(const struct cli *cli, struct sockaddr_un *to)
{
    const char *pool = NULL, *path = cli->given[OPTION_socket];
    if (!path)
        pool = cli->given[OPTION_pool];
    if (!path && !pool)
        path = getenv("SLUICE_SOCKET");
    if (!path && !pool)
        pool = getenv("SLUICE_POOL");
    if (!path && !pool)
        path = DEFAULT_SOCKET;
    size_t room = sizeof to->sun_path;
    size_t length = path ? strlen(path) : strlen(pool) + strlen("/control.sock");
    if (length >= room) {
        cli_complain("the socket's path has %zu bytes and may have %zu; start sluiced with a shorter "
                     "--socket PATH", length, room - 1);
        return EXIT_NO_SERVER;
    }
    to->sun_family = AF_UNIX;
    snprintf(to->sun_path, room, "%s%s", path ? path : pool, path ? "" : "/control.sock");
    return EXIT_DONE;
}

static const char *advice(int error)
{
    if (error == ENOENT || error == ECONNREFUSED)
        return "no server runs there; is it another pool? Say --pool DIR or --socket PATH, "
               "or set SLUICE_POOL";
    if (error == EACCES || error == EPERM)
        return "only the user who runs sluiced, and root, may use it";
    return strerror(error);
}

int client_open(const struct cli *cli, struct client *c)
{
    struct sockaddr_un address = {0};
    *c = (struct client){.fd = -1};
    int code = find_socket(cli, &address);
    if (code)
        return code;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd >= 0 && connect(c->fd, (struct sockaddr *)&address, sizeof address) == 0)
        c->in = fdopen(c->fd, "r");
    if (c->in)
        return EXIT_DONE;
    cli_complain("cannot reach the server at %s: %s", address.sun_path, advice(errno));
    if (c->fd >= 0)
        close(c->fd);
    return EXIT_NO_SERVER;
}

void client_close(struct client *c)
{
    fclose(c->in);
    free(c->line);
}

int client_send(struct client *c, json_t *request)
{
    char *text = request ? json_dumps(request, JSON_COMPACT) : NULL;
    json_decref(request);
    if (!text) {
        cli_complain("an argument is not UTF-8, or there is no memory");
        return EXIT_FAILED;
    }
    size_t length = strlen(text), sent = 0;
    text[length++] = '\n';
    while (sent < length) {
        ssize_t now = send(c->fd, text + sent, length - sent, MSG_NOSIGNAL);
        if (now < 0 && errno == EINTR)
            continue;
        if (now < 0)
            break;
        sent += (size_t)now;
    }
    free(text);
    if (sent == length)
        return EXIT_DONE;
    cli_complain("the server has closed the connection");
    return EXIT_NO_SERVER;
}

json_t *client_next(struct client *c)
{
    ssize_t length = getline(&c->line, &c->room, c->in);
    json_t *answer = length > 0 ? json_loadb(c->line, (size_t)length, 0, NULL) : NULL;
    if (json_is_object(answer))
        return answer;
    json_decref(answer);
    cli_complain(length > 0 ? "the server's answer is no JSON object"
                            : "the server ended the connection before its answer");
    return NULL;
}

bool answer_final(const json_t *answer)
{
    return json_object_get(answer, "ok") != NULL;
}

int answer_failed(const struct cli *cli, json_t *answer)
{
    if (json_is_true(json_object_get(answer, "ok")))
        return EXIT_DONE;
    const char *code = text_of(answer, "code");
    if (cli->given[OPTION_json])
        show_json(answer);
    else
        cli_complain("%s", text_of(answer, "error"));
    return strcmp(code, "EINVAL") == 0 ? EXIT_USAGE : EXIT_FAILED;
}

int client_ask(const struct cli *cli, json_t *request, json_t **answer)
{
    struct client c;
    *answer = NULL;
    int code = client_open(cli, &c);
    if (code) {
        json_decref(request);
        return code;
    }
    code = client_send(&c, request);
    if (!code) {
        *answer = client_next(&c);
        code = *answer ? answer_failed(cli, *answer) : EXIT_NO_SERVER;
    }
    client_close(&c);
    if (code) {
        json_decref(*answer);
        *answer = NULL;
    }
    return code;
}

int ask_and_show(const struct cli *cli, json_t *request, void (*human)(const json_t *answer))
{
    json_t *answer;
    int code = client_ask(cli, request, &answer);
    if (code)
        return code;
    if (!cli->given[OPTION_json] && human)
        human(answer);
    if (cli->given[OPTION_json])
        show_json(answer);
    else if (json_object_get(answer, "warning"))
        show_warning(text_of(answer, "warning"));
    json_decref(answer);
    return EXIT_DONE;
}
