#include "admin/control.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "admin/commands.h"
#include "sluice/base_log.h"
#include "sluice/base_protocol.h"
#include "sluice/base_worker.h"

enum { CONNECTIONS_MOST = 256, UNSENT_MOST = 4 << 20, READ_ROOM = 64 << 10 };

struct connection {
    uv_pipe_t pipe;
    struct connection *next;
    char *in; /* what has come and is not yet answered */
    size_t in_length, in_room;
    unsigned writes;
    uint32_t uid, gid;
    int fd;
    bool busy, ended, closing;
    _Atomic bool gone;
    size_t unsent;       /* with `lock` */
    struct coro *waiter; /* with `lock` */
};

/* Something to send.  `object` is the final answer's mark: the request has ended with this chunk. */
struct chunk {
    struct chunk *next;
    struct connection *connection;
    uv_write_t write;
    struct request *finished;
    size_t length;
    char data[];
};

static uv_loop_t *loop;
static uv_pipe_t listener;
static uv_async_t wake;
static struct connection *connections;
static unsigned connection_count, busy_count;
static char socket_path[sizeof((struct sockaddr_un *)0)->sun_path];
static _Atomic bool stopping;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct chunk *outgoing_first, *outgoing_last;

static void next_request(struct connection *c);

static void drop_line(struct connection *c, const char *newline)
{
    size_t length = (size_t)(newline - c->in) + 1;
    c->in_length -= length;
    memmove(c->in, c->in + length, c->in_length);
}

/* What is nested deeper than any request is would be read, and freed, by a recursion that a coroutine's stack does not
 * hold. */
static json_t *parse_line(const char *line, size_t length, json_error_t *problem)
{
    enum { DEPTH_MOST = 16 };
    unsigned depth = 0;
    bool in_text = false;
    for (size_t i = 0; i < length; i++) {
        char c = line[i];
        if (in_text && c == '\\')
            i++;
        else if (c == '"')
            in_text = !in_text;
        else if (!in_text && (c == ']' || c == '}'))
            depth -= depth > 0;
        else if (!in_text && (c == '[' || c == '{') && ++depth > DEPTH_MOST) {
            snprintf(problem->text, sizeof problem->text, "it is nested too deep");
            return NULL;
        }
    }
    return json_loadb(line, length, JSON_REJECT_DUPLICATES, problem);
}

/* ---- commands' side ---- */

bool request_gone(const struct request *r)
{
    return r->connection->gone || stopping;
}

bool request_left(struct request *r)
{
    struct pollfd end = {.fd = r->connection->fd};
    if (poll(&end, 1, 0) == 1 && end.revents & (POLLHUP | POLLERR))
        r->connection->gone = true;
    return request_gone(r);
}

static int more_room(struct connection *c)
{
    size_t want = c->in_length + READ_ROOM;
    if (c->in_room >= want)
        return 0;
    char *more = realloc(c->in, want);
    if (!more)
        return -ENOMEM;
    c->in = more;
    c->in_room = want;
    return 0;
}

/* While a request runs the loop leaves the connection's input alone. */
int request_next(struct request *r, json_t **out)
{
    struct connection *c = r->connection;
    *out = NULL;
    while (!request_gone(r)) {
        char *newline = c->in_length ? memchr(c->in, '\n', c->in_length) : NULL;
        if (newline) {
            json_error_t problem;
            *out = parse_line(c->in, (size_t)(newline - c->in), &problem);
            drop_line(c, newline);
            if (json_is_object(*out))
                return 0;
            json_decref(*out);
            *out = NULL;
            return -EINVAL;
        }
        if (c->in_length > PROTOCOL_LINE_MAX)
            return -EINVAL;
        if (more_room(c))
            return -ENOMEM;
        ssize_t got = recv(c->fd, c->in + c->in_length, READ_ROOM, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return -EAGAIN;
        if (got <= 0)
            return -EPIPE;
        c->in_length += (size_t)got;
    }
    return -EPIPE;
}

json_t *request_error(int error, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    json_t *answer = json_pack("{s:b, s:s, s:s}", "ok", 0, "error", text, "code", sl_errname(error));
    if (!answer) /* a name in the sentence is not UTF-8 */
        answer = json_pack("{s:b, s:s, s:s}", "ok", 0, "error", sl_strerror(error), "code",
                           sl_errname(error));
    return answer;
}

static struct chunk *chunk_new(const void *bytes, size_t length)
{
    struct chunk *chunk = malloc(sizeof *chunk + length);
    if (!chunk)
        return NULL;
    *chunk = (struct chunk){.length = length};
    memcpy(chunk->data, bytes, length);
    return chunk;
}

static void hand_over(struct connection *c, struct chunk *chunk)
{
    chunk->connection = c;
    pthread_mutex_lock(&lock);
    if (outgoing_first)
        outgoing_last->next = chunk;
    else
        outgoing_first = chunk;
    outgoing_last = chunk;
    c->unsent += chunk->length;
    bool wait = c->unsent > UNSENT_MOST && !chunk->finished;
    if (wait)
        c->waiter = coro_self();
    pthread_mutex_unlock(&lock);
    uv_async_send(&wake);
    if (wait)
        coro_wait();
}

int request_send_bytes(struct request *r, const void *bytes, size_t length)
{
    if (request_gone(r))
        return -EPIPE;
    struct chunk *chunk = chunk_new(bytes, length);
    if (!chunk)
        return -ENOMEM;
    hand_over(r->connection, chunk);
    return request_gone(r) ? -EPIPE : 0;
}

static struct chunk *chunk_of_object(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT) : NULL;
    size_t length = text ? strlen(text) : 0;
    json_decref(object);
    if (!text)
        return NULL;
    text[length] = '\n'; /* over the terminating zero, which nobody needs */
    struct chunk *chunk = chunk_new(text, length + 1);
    free(text);
    return chunk;
}

int request_send(struct request *r, json_t *object)
{
    if (request_gone(r)) {
        json_decref(object);
        return -EPIPE;
    }
    struct chunk *chunk = chunk_of_object(object);
    if (!chunk)
        return -ENOMEM;
    hand_over(r->connection, chunk);
    return request_gone(r) ? -EPIPE : 0;
}

static void run_request(void *arg)
{
    static const char no_memory[] = "{\"ok\":false,\"error\":\"no memory\",\"code\":\"ENOMEM\"}\n";
    struct request *r = arg;
    json_t *answer = command_run(r);
    if (answer && !json_object_get(answer, "ok"))
        json_object_set_new(answer, "ok", json_true());
    struct chunk *chunk = chunk_of_object(answer);
    while (!chunk) {
        chunk = chunk_new(no_memory, sizeof no_memory - 1);
        if (!chunk)
            coro_sleep(100);
    }
    chunk->finished = r;
    hand_over(r->connection, chunk);
}

/* ---- connections ---- */

static void after_close(uv_handle_t *handle)
{
    struct connection *c = handle->data;
    for (struct connection **at = &connections; *at; at = &(*at)->next) {
        if (*at == c) {
            *at = c->next;
            break;
        }
    }
    connection_count--;
    free(c->in);
    free(c);
}

static void close_when_idle(struct connection *c)
{
    if (c->closing || c->busy || c->writes || !(c->ended || c->gone))
        return;
    c->closing = true;
    uv_close((uv_handle_t *)&c->pipe, after_close);
}

static void take_off(struct connection *c, size_t length)
{
    pthread_mutex_lock(&lock);
    c->unsent -= length;
    struct coro *waiter = c->unsent <= UNSENT_MOST / 2 || c->gone ? c->waiter : NULL;
    if (waiter)
        c->waiter = NULL;
    pthread_mutex_unlock(&lock);
    if (waiter)
        coro_wake_remote(waiter);
}

static void after_write(uv_write_t *write, int status)
{
    struct chunk *chunk = write->data;
    struct connection *c = chunk->connection;
    c->writes--;
    if (status < 0)
        c->gone = true;
    take_off(c, chunk->length);
    free(chunk);
    close_when_idle(c);
}

static void send_chunk(struct connection *c, struct chunk *chunk)
{
    uv_buf_t buffer = uv_buf_init(chunk->data, (unsigned)chunk->length);
    chunk->write.data = chunk;
    c->writes++;
    if (!c->gone && uv_write(&chunk->write, (uv_stream_t *)&c->pipe, &buffer, 1, after_write) == 0)
        return;
    after_write(&chunk->write, UV_EPIPE);
}

static void finish_request(struct connection *c, struct request *r)
{
    json_decref(r->args);
    free(r);
    c->busy = false;
    busy_count--;
    next_request(c);
}

static void on_wake(uv_async_t *handle)
{
    pthread_mutex_lock(&lock);
    struct chunk *chunk = outgoing_first;
    outgoing_first = outgoing_last = NULL;
    pthread_mutex_unlock(&lock);
    while (chunk) {
        struct chunk *next = chunk->next;
        struct connection *c = chunk->connection;
        struct request *finished = chunk->finished;
        send_chunk(c, chunk); /* may free the chunk; c stays while it is busy */
        if (finished)
            finish_request(c, finished);
        chunk = next;
    }
}

static void answer_now(struct connection *c, json_t *answer)
{
    struct chunk *chunk = chunk_of_object(answer);
    if (!chunk) {
        c->gone = true;
        return;
    }
    chunk->connection = c;
    pthread_mutex_lock(&lock);
    c->unsent += chunk->length;
    pthread_mutex_unlock(&lock);
    send_chunk(c, chunk);
}

static void start_request(struct connection *c, json_t *args)
{
    static unsigned turn;
    struct request *r = calloc(1, sizeof *r);
    struct worker *w = worker_at(turn++ % workers_count());
    if (r) {
        *r = (struct request){.connection = c, .args = args, .uid = c->uid, .gid = c->gid};
        c->busy = true;
        busy_count++;
        if (worker_spawn(w, run_request, r) == 0)
            return;
        c->busy = false;
        busy_count--;
        free(r);
    }
    json_decref(args);
    answer_now(c, request_error(-ENOMEM, "the server has no memory for this command; try again"));
}

static void take_line(struct connection *c, const char *newline)
{
    json_error_t problem;
    json_t *args = parse_line(c->in, (size_t)(newline - c->in), &problem);
    drop_line(c, newline); /* before the request runs, which may take the lines behind it */
    if (json_is_object(args)) {
        start_request(c, args);
        return;
    }
    answer_now(c, request_error(-EINVAL, "a request must be one JSON object on one line: %s",
                                args ? "this is no object" : problem.text));
    json_decref(args);
}

/* ---- reading ---- */

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct connection *c = handle->data;
    (void)more_room(c); /* libuv takes a buffer without room as an error */
    *buffer = uv_buf_init(c->in + c->in_length, (unsigned)(c->in_room - c->in_length));
}

static void on_read(uv_stream_t *stream, ssize_t length, const uv_buf_t *buffer)
{
    struct connection *c = stream->data;
    if (length > 0) {
        c->in_length += (size_t)length;
    } else if (length < 0) {
        c->ended = true;
        c->gone = c->gone || length != UV_EOF;
    }
    next_request(c);
}

/* Begins with the next complete line, if one has come; reads on only while nothing runs. */
static void next_request(struct connection *c)
{
    char *newline;
    while (!c->busy && !c->gone && !stopping && c->in_length &&
           (newline = memchr(c->in, '\n', c->in_length)))
        take_line(c, newline);
    if (!c->busy && c->in_length > PROTOCOL_LINE_MAX) {
        answer_now(c, request_error(-EINVAL, "a request line may have at most 1 MiB"));
        c->ended = true;
    }
    if (c->closing)
        return;
    if (c->busy || c->ended || c->gone || stopping)
        uv_read_stop((uv_stream_t *)&c->pipe);
    else if (uv_read_start((uv_stream_t *)&c->pipe, on_room, on_read) < 0 &&
             !uv_is_active((uv_handle_t *)&c->pipe))
        c->gone = true;
    close_when_idle(c);
}

static void after_refused(uv_handle_t *handle)
{
    free(handle->data);
}

static void on_connection(uv_stream_t *server, int status)
{
    struct connection *c = status < 0 ? NULL : calloc(1, sizeof *c);
    if (!c)
        return;
    uv_pipe_init(loop, &c->pipe, 0);
    c->pipe.data = c;
    uv_os_fd_t fd;
    struct ucred peer;
    socklen_t room = sizeof peer;
    if (uv_accept(server, (uv_stream_t *)&c->pipe) || connection_count >= CONNECTIONS_MOST ||
        uv_fileno((uv_handle_t *)&c->pipe, &fd) ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &room)) {
        uv_close((uv_handle_t *)&c->pipe, after_refused);
        return;
    }
    c->fd = fd;
    c->uid = peer.uid;
    c->gid = peer.gid;
    c->next = connections;
    connections = c;
    connection_count++;
    next_request(c);
}

/* ---- start and stop ---- */

/* True if somebody accepts there. */
static bool somebody_listens(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool answered = connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    close(fd);
    return answered;
}

static int make_way(const char *path, char why[256])
{
    struct stat st;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);
    if (length >= sizeof address.sun_path) {
        snprintf(why, 256, "the control socket's path has %zu bytes and may have %zu; give a shorter one "
                 "with --socket PATH", length, sizeof address.sun_path - 1);
        return -ENAMETOOLONG;
    }
    memcpy(address.sun_path, path, length + 1);
    if (lstat(path, &st))
        return 0;
    if (!S_ISSOCK(st.st_mode)) {
        snprintf(why, 256, "%.150s is there and no socket; give another path with --socket", path);
        return -EEXIST;
    }
    if (somebody_listens(&address)) {
        snprintf(why, 256, "another program listens on %.100s; give another path with --socket", path);
        return -EADDRINUSE;
    }
    if (unlink(path)) {
        snprintf(why, 256, "the old %.150s cannot be removed: %s", path, sl_strerror(-errno));
        return -errno;
    }
    return 0;
}

/* libuv calls that "permission denied". */
static bool no_directory(const char *path)
{
    char dir[sizeof socket_path];
    snprintf(dir, sizeof dir, "%s", path);
    char *slash = strrchr(dir, '/');
    if (!slash)
        return false;
    slash[1] = 0;
    return access(dir, F_OK) != 0 && errno == ENOENT;
}

int control_start(uv_loop_t *on, const char *path, char why[256])
{
    loop = on;
    int error = make_way(path, why);
    if (error)
        return error;
    uv_async_init(loop, &wake, on_wake);
    uv_pipe_init(loop, &listener, 0);
    mode_t mask = umask(0177);
    error = uv_pipe_bind(&listener, path);
    umask(mask);
    if (!error)
        error = uv_listen((uv_stream_t *)&listener, 128, on_connection);
    if (error) {
        snprintf(why, 256, "the control socket %.120s cannot be made: %s", path,
                 error == UV_EACCES && no_directory(path) ? "its directory is not there" : uv_strerror(error));
        return error;
    }
    snprintf(socket_path, sizeof socket_path, "%s", path);
    return 0;
}

static void on_time(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static void forget_timer(uv_handle_t *handle)
{
}

bool control_stop(unsigned ms)
{
    static uv_timer_t timer;
    bool late = false;
    stopping = true;
    unlink(socket_path);
    uv_close((uv_handle_t *)&listener, NULL);
    uv_timer_init(loop, &timer);
    timer.data = &late;
    uv_timer_start(&timer, on_time, ms, 0);
    for (struct connection *c = connections, *next; c; c = next) {
        next = c->next;
        c->ended = true;
        next_request(c);
    }
    while (connection_count && !late)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, forget_timer);
    if (busy_count)
        return false;
    uv_close((uv_handle_t *)&wake, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
    return true;
}
