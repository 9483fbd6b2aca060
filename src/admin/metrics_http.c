#include "admin/metrics_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/prometheus.h"
#include "sluice/base_error.h"
#include "sluice/base_log.h"

enum { CONNECTIONS_MOST = 32, IDLE_SECONDS = 30, TICK_MS = 1000 };

static struct MHD_Daemon *daemon_now;
static uv_poll_t poll_handle;
static uv_timer_t tick_handle;
static char url[128];

const char *metrics_http_url(void)
{
    return url;
}

/* ---- answering ---- */

static enum MHD_Result answer(struct MHD_Connection *to, unsigned status, char *text, size_t length,
                              enum MHD_ResponseMemoryMode mode, const char *type)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(length, text, mode);
    if (!response) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free(text);
        return MHD_NO;
    }
    enum MHD_Result result = MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED && result == MHD_YES)
        result = MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (result == MHD_YES)
        result = MHD_queue_response(to, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_page(struct MHD_Connection *to, unsigned status, const char *page)
{
    return answer(to, status, (char *)(uintptr_t)page, strlen(page), MHD_RESPMEM_PERSISTENT,
                  "text/html; charset=utf-8");
}

static enum MHD_Result on_request(void *unused, struct MHD_Connection *connection, const char *path,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_size, void **state)
{
    static int seen;
    size_t length = 0;
    if (!*state) { /* the headers alone are there; the answer comes when the request is */
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_size) { /* nobody wants it */
        *upload_size = 0;
        return MHD_YES;
    }
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return answer_page(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "There is only GET.\n");
    if (strcmp(path, "/") == 0)
        return answer_page(connection, MHD_HTTP_OK,
                           "<html><body>Sluice: <a href=\"/metrics\">metrics</a></body></html>\n");
    if (strcmp(path, "/metrics") != 0)
        return answer_page(connection, MHD_HTTP_NOT_FOUND, "There is only /metrics.\n");
    char *text = prometheus_text(&length);
    if (!text)
        return answer_page(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "No memory.\n");
    return answer(connection, MHD_HTTP_OK, text, length, MHD_RESPMEM_MUST_FREE,
                  "text/plain; version=0.0.4; charset=utf-8");
}

/* ---- the loop ---- */

static void on_ready(uv_poll_t *handle, int status, int events)
{
    MHD_run(daemon_now);
}

/* Connections that nobody uses are closed in time. */
static void on_tick(uv_timer_t *timer)
{
    MHD_run(daemon_now);
}

static void on_error(void *unused, const char *format, va_list arguments)
{
    char text[512];
    size_t length;
    vsnprintf(text, sizeof text, format, arguments);
    length = strlen(text);
    if (length && text[length - 1] == '\n')
        text[length - 1] = 0;
    log_info("metrics", "%s", text);
}

/* ---- starting ---- */

static bool parse(const char *text, struct sockaddr_storage *to)
{
    char host[INET6_ADDRSTRLEN + 2];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : sizeof host;
    if (length >= sizeof host)
        return false;
    memcpy(host, text, length);
    host[length] = 0;
    in_port_t port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    memset(to, 0, sizeof *to);
    if (*host == '[') {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
        host[length - 1] = 0;
        six->sin6_family = AF_INET6;
        six->sin6_port = port;
        return inet_pton(AF_INET6, host + 1, &six->sin6_addr) == 1;
    }
    struct sockaddr_in *four = (struct sockaddr_in *)to;
    four->sin_family = AF_INET;
    four->sin_port = port;
    return inet_pton(AF_INET, host, &four->sin_addr) == 1;
}

/* libmicrohttpd keeps to itself why it could not listen. */
static int listen_error(const struct sockaddr_storage *address)
{
    int error = 0, one = 1, fd = socket(address->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) || listen(fd, 1))
        error = -errno;
    close(fd);
    return error ? error : -EIO;
}

static int watch(uv_loop_t *loop)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(daemon_now, MHD_DAEMON_INFO_EPOLL_FD);
    int error = info ? uv_poll_init(loop, &poll_handle, info->epoll_fd) : UV_EINVAL;
    if (error)
        return error;
    uv_poll_start(&poll_handle, UV_READABLE, on_ready);
    uv_timer_init(loop, &tick_handle);
    uv_timer_start(&tick_handle, on_tick, TICK_MS, TICK_MS);
    return 0;
}

int metrics_http_start(uv_loop_t *loop, const char *text, char why[256])
{
    struct sockaddr_storage address;
    if (!parse(text, &address)) {
        snprintf(why, 256, "%s is not an address and a port", text);
        return -EINVAL;
    }
    unsigned flags = MHD_USE_EPOLL | MHD_USE_ERROR_LOG;
    if (address.ss_family == AF_INET6)
        flags |= MHD_USE_IPv6;
    daemon_now = MHD_start_daemon(flags, 0, NULL, NULL, on_request, NULL, MHD_OPTION_SOCK_ADDR, &address,
                                  MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS_MOST,
                                  MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS,
                                  MHD_OPTION_EXTERNAL_LOGGER, on_error, NULL, MHD_OPTION_END);
    if (!daemon_now) {
        snprintf(why, 256, "%s: %s", text, sl_strerror(listen_error(&address)));
        return -EADDRINUSE;
    }
    int error = watch(loop);
    if (error) {
        snprintf(why, 256, "%s: %s", text, uv_strerror(error));
        MHD_stop_daemon(daemon_now);
        daemon_now = NULL;
        return error;
    }
    const union MHD_DaemonInfo *bound = MHD_get_daemon_info(daemon_now, MHD_DAEMON_INFO_BIND_PORT);
    snprintf(url, sizeof url, "http://%.*s:%u/metrics", (int)(strrchr(text, ':') - text), text,
             bound ? bound->port : 0);
    return 0;
}

void metrics_http_stop(void)
{
    if (!daemon_now)
        return;
    uv_poll_stop(&poll_handle);
    uv_close((uv_handle_t *)&poll_handle, NULL);
    uv_close((uv_handle_t *)&tick_handle, NULL);
    MHD_stop_daemon(daemon_now);
    daemon_now = NULL;
    *url = 0;
}
