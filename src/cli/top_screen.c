#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "cli/top.h"

#define ENTER   "\033[?1049h\033[?25l" /* another screen, no cursor */
#define LEAVE   "\033[?25h\033[?1049l"
#define HOME    "\033[H"
#define INVERSE "\033[7m"
#define PLAIN   "\033[m"
#define TO_END  "\033[K"
#define BELOW   "\033[J"

enum { ROWS_LEAST = 10, COLUMNS_LEAST = 40 };

static struct termios terminal_before;
static volatile sig_atomic_t ended, resized;

static void on_end(int number)
{
    ended = 1;
}

static void on_resize(int number)
{
    resized = 1;
}

static void put(const char *text)
{
    fputs(text, stdout);
}

static void enter(void)
{
    struct termios quiet;
    struct sigaction action = {.sa_handler = on_end};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    action.sa_handler = on_resize;
    sigaction(SIGWINCH, &action, NULL);
    tcgetattr(STDIN_FILENO, &terminal_before);
    quiet = terminal_before;
    quiet.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    quiet.c_cc[VMIN] = 0;
    quiet.c_cc[VTIME] = 0;
    quiet.c_cc[VSUSP] = _POSIX_VDISABLE; /* ^Z would leave the screen as it is */
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &quiet);
    put(ENTER);
}

static void leave(void)
{
    put(LEAVE);
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &terminal_before);
}

static void size_of(int *rows, int *columns)
{
    struct winsize size = {0};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    *rows = size.ws_row ? size.ws_row : 24;
    *columns = size.ws_col ? size.ws_col : 80;
}

/* ---- drawing ---- */

static void draw_line(const char *line)
{
    put(line);
    put(TO_END "\r\n");
}

static void draw_title(bool clients, int columns)
{
    char line[TOP_LINE];
    top_line_title(clients, columns, line);
    printf(INVERSE "%-*s" PLAIN "\r\n", columns, line);
}

static void draw_table(const struct top_table *table, bool clients, unsigned room, int columns)
{
    char line[TOP_LINE];
    unsigned shown = table->count <= room ? table->count : room - 1;
    draw_title(clients, columns);
    for (unsigned i = 0; i < shown; i++) {
        top_line_row(&table->rows[i], clients, columns, line);
        draw_line(line);
    }
    if (shown < table->count) {
        snprintf(line, sizeof line, "and %u more", table->count - shown);
        draw_line(line);
    }
}

static void draw_foot(const struct top *t, int columns)
{
    static const char *const feet[] = {
#define TOP_FOOT(key, name, foot) foot,
        TOP_SORTS(TOP_FOOT)
#undef TOP_FOOT
    };
    int used = 5;
    put("sort:");
    for (unsigned i = 0; i < TOP_BY_COUNT && used + 1 + (int)strlen(feet[i]) + 8 < columns; i++) {
        printf(" %s%s%s", i == t->sort ? INVERSE : "", feet[i], i == t->sort ? PLAIN : "");
        used += 1 + (int)strlen(feet[i]);
    }
    put("  q)uit" TO_END);
}

/* The tables share what is left by the two lines of the head, two blank ones, two titles and the foot. */
static void draw_tables(const struct top *t, unsigned room, int columns)
{
    unsigned volumes = t->volumes.count, clients = t->clients.count, half = room / 2;
    if (volumes + clients > room) {
        if (volumes > half && clients > half)
            volumes = half;
        else if (volumes > half)
            volumes = room - clients;
        clients = room - (volumes < t->volumes.count ? volumes : t->volumes.count);
    }
    draw_table(&t->volumes, false, volumes, columns);
    draw_line("");
    draw_table(&t->clients, true, clients, columns);
}

static void draw(const struct top *t)
{
    int rows, columns;
    char line[TOP_LINE];
    size_of(&rows, &columns);
    put(HOME);
    if (rows < ROWS_LEAST || columns < COLUMNS_LEAST) {
        put("too small" BELOW);
        fflush(stdout);
        return;
    }
    if (columns >= TOP_LINE)
        columns = TOP_LINE - 1;
    for (unsigned i = 0; i < 2; i++) {
        top_line_head(t, i, columns, line);
        draw_line(line);
    }
    draw_line("");
    draw_tables(t, (unsigned)rows - 7, columns);
    put(BELOW);
    printf("\033[%d;1H", rows);
    draw_foot(t, columns);
    fflush(stdout);
}

/* ---- keys ---- */

static bool take_key(struct top *t)
{
    static const char keys[] = {
#define TOP_KEY(key, name, foot) key,
        TOP_SORTS(TOP_KEY)
#undef TOP_KEY
    };
    char key;
    while (read(STDIN_FILENO, &key, 1) == 1) {
        if (key == 'q' || key == 'Q')
            return false;
        for (unsigned i = 0; i < TOP_BY_COUNT; i++)
            if (keys[i] == key)
                t->sort = i;
    }
    top_order(t);
    return true;
}

/* Until the next sample is due; false: it is over. */
static bool wait_for_keys(struct top *t, double until)
{
    while (!ended) {
        double left = until - seconds_now();
        struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
        if (left <= 0)
            return true;
        int ready = poll(&input, 1, (int)(left * 1000) + 1);
        if (ready > 0 && ((input.revents & (POLLHUP | POLLERR)) || !take_key(t)))
            return false;
        if ((ready > 0 || resized) && t->before) {
            resized = 0;
            draw(t);
        }
    }
    return false;
}

int top_screen(const struct cli *cli, struct top *t, double seconds)
{
    enum { FIRST_MS = 300 }; /* until there is something to see */
    int code = top_sample(cli, t);
    if (code)
        return code;
    enter();
    double due = seconds_now() + FIRST_MS / 1e3;
    while (wait_for_keys(t, due)) {
        code = top_sample(cli, t);
        if (code)
            break;
        draw(t);
        due = seconds_now() + seconds;
    }
    leave();
    if (code)
        cli_complain("the server has gone");
    return code;
}
