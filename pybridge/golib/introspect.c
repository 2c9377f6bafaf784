/*
 * introspect.c: answers `goloop ps` and `goloop top` for a process whose GIL is held.
 *
 * A thread of Python's answers (goloop/_internal/introspection.py), which needs the GIL.  Where it does
 * not get it though somebody waits (core/state/asker.c), this answers: it tells what the shared
 * blocks and the watchdog know, and says that it is not all ("partial").
 *
 * introspect_look is the monitor thread's, with its lock; each answer has a thread of its own, so
 * that nobody who asks can hold up the monitor.
 */
#define _GNU_SOURCE 1
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "introspect.h"
#include "thread.h"

/* Python has been given so long to come. */
#define PATIENCE_NS 500000000
#define QUESTION_MS 1000
#define ANSWER_MS 10000
#define QUESTION_MAX 4096

/* ---- text that grows ------------------------------------------------------------------- */

typedef struct {
    char *at;
    size_t len, cap;
    bool failed;
} text;

static char *
text_room(text *t, size_t n)
{
    if (t->len + n > t->cap) {
        size_t cap = 2 * t->cap + n + 4096;
        char *grown = t->failed ? NULL : realloc(t->at, cap);
        if (grown == NULL) {
            t->failed = true;
            return NULL;
        }
        t->at = grown;
        t->cap = cap;
    }
    return t->at + t->len;
}

__attribute__((format(printf, 2, 3))) static void
text_add(text *t, const char *format, ...)
{
    char *room = text_room(t, 512);
    if (room == NULL)
        return;
    va_list args;
    va_start(args, format);
    int n = vsnprintf(room, 512, format, args);
    va_end(args);
    if (n > 0 && n < 512)
        t->len += (size_t)n;
}

/* As base64, with its name. */
static void
text_add_bytes(text *t, const char *name, const void *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = bytes;
    text_add(t, "\"%s\":\"", name);
    char *to = text_room(t, n * 4 / 3 + 8);
    if (to == NULL)
        return;
    for (size_t i = 0; i < n; i += 3) {
        size_t k = n - i < 3 ? n - i : 3;
        uint32_t v = (uint32_t)p[i] << 16 | (k > 1 ? (uint32_t)p[i + 1] << 8 : 0) |
                     (k > 2 ? p[i + 2] : 0);
        *to++ = digits[v >> 18 & 63];
        *to++ = digits[v >> 12 & 63];
        *to++ = k > 1 ? digits[v >> 6 & 63] : '=';
        *to++ = k > 2 ? digits[v & 63] : '=';
    }
    t->len = (size_t)(to - t->at);
    text_add(t, "\",");
}

/* ---- the answer ------------------------------------------------------------------------- */

static void
add_histogram(text *t, const char *name, const gl_histogram *h)
{
    text_add_bytes(t, name, h, h->count ? sizeof *h : 0);
}

static void
add_number(text *t, const char *name, uint64_t value)
{
    text_add(t, "\"%s\":%llu,", name, (unsigned long long)value);
}

/* Not by %f, whose decimal point is the locale's. */
static void
add_seconds(text *t, const char *name, int64_t ns)
{
    text_add(t, ",\"%s\":%lld.%09lld", name, (long long)(ns / 1000000000),
             (long long)(ns % 1000000000));
}

static void
add_reactor(gl_shared *sh, void *arg)
{
    text *t = arg;
    const gl_metrics *m = &sh->metrics;
    bool awake = __atomic_load_n(&sh->awake, __ATOMIC_RELAXED) != 0;
    int64_t now = monitor_now();
    int64_t ns = awake ? now - __atomic_load_n(&sh->now, __ATOMIC_RELAXED) : 0;
    if (t->len > 0 && t->at[t->len - 1] == '}')
        text_add(t, ",");
    text_add(t, "{\"running\":%s", awake ? "true" : "false");
    add_seconds(t, "blocked_for", ns > 0 ? ns : 0);
    add_seconds(t, "clock", now);
    text_add(t, ",\"stack\":");
    char *room = text_room(t, 32768);
    if (room != NULL)
        t->len += awake ? sh->watchdog->describe(sh, room, 32768)
                        : (size_t)snprintf(room, 32768, "[]");
    text_add(t, ",\"metrics\":{");
    add_histogram(t, "iteration_time", &m->iteration_time);
    add_histogram(t, "poll_time", &m->poll_time);
    add_histogram(t, "events_per_turn", &m->events_per_turn);
    add_histogram(t, "ready_wait", &m->ready_wait);
    add_histogram(t, "timer_lateness", &m->timer_lateness);
    add_histogram(t, "dns_time", &m->dns_time);
    add_number(t, "time_busy", m->iteration_time.sum);
    add_number(t, "time_idle", m->poll_time.sum);
    add_number(t, "turns", sh->turns);
    add_number(t, "bytes_received", m->bytes_received);
    add_number(t, "bytes_sent", m->bytes_sent);
    add_number(t, "reads", m->reads);
    add_number(t, "writes", m->writes);
    add_number(t, "late_writes", sh->late_writes);
    add_number(t, "connections_accepted", sh->accepts);
    add_number(t, "blocked_spells", sh->blocked_spells);
    add_number(t, "blocked_for", (uint64_t)(ns > 0 ? ns : 0));
    text_add(t, "\"loops\":1}}");
}

/* Waits until the descriptor is ready for `events`. */
static bool
ready(int fd, short events, int ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    return poll(&p, 1, ms) == 1;
}

static void *
introspect_answer(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char question[QUESTION_MAX];
    size_t got = 0;
    thread_set_name("goloop-answer");
    /* What stays unread would be a reset for who asks. */
    while (got < sizeof question && memchr(question, '\n', got) == NULL &&
           ready(fd, POLLIN, QUESTION_MS)) {
        ssize_t n = recv(fd, question + got, sizeof question - got, MSG_DONTWAIT);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    text t = {NULL, 0, 0, false};
    text_add(&t, "{\"protocol\":1,\"partial\":true,\"pid\":%ld,\"loops\":[", (long)getpid());
    monitor_each(add_reactor, &t);
    text_add(&t, "]}");
    for (size_t done = 0; !t.failed && done < t.len && ready(fd, POLLOUT, ANSWER_MS);) {
        ssize_t n = send(fd, t.at + done, t.len - done, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    (void)shutdown(fd, SHUT_WR);
    close(fd);
    free(t.at);
    return NULL;
}

void
introspect_look(gl_asker *asker, int64_t now)
{
    int64_t since = asker ? __atomic_load_n(&asker->since, __ATOMIC_ACQUIRE) : 0;
    pthread_t thread;
    if (since == 0 || now - since < PATIENCE_NS)
        return;
    int fd = __atomic_exchange_n(&asker->fd, 0, __ATOMIC_ACQ_REL) - 1;
    if (fd < 0 && (fd = asker->next()) < 0)
        return;
    if (thread_start(&thread, introspect_answer, (void *)(intptr_t)fd) != 0)
        close(fd);
    else
        pthread_detach(thread);
}
