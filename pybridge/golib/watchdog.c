/*
 * watchdog.c: tells C of an iteration of a loop that lasts too long, while it lasts.
 *
 *     quiet --now - shared.now > limit--> seen: C notes the stack, a thread waits for the GIL
 *       ^                                   |
 *       |  the iteration ends, and C        | half a limit later, the thread has no GIL
 *       |  tells it                         v
 *       +------------------------------- insisted: C's text goes to stderr, without the GIL
 *                                           |
 *                                           v blocked_end: a last text, and the process ends
 *
 * Used by the monitor's thread alone, with its lock: so nothing here waits for anybody.
 */
#define _GNU_SOURCE 1
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "thread.h"
#include "watchdog.h"

/* A stack of 48 frames, and another one. */
#define TEXT_MAX 8192
#define OUTPUT_MAX (4 * TEXT_MAX)
/* A process that gives up leaves stderr so many times 10 ms. */
#define LAST_WORDS 100

/* lint: allow mutable-static: the monitor thread's own */
static int64_t attentive_since;

void
watchdog_wakes(int64_t now)
{
    attentive_since = now;
}

/* ---- stderr ---------------------------------------------------------------------------
 *
 * It may take nothing: a pipe that nobody reads, a terminal after Ctrl-S.  It is other processes',
 * too, so that it can't be made non-blocking.  So texts wait here for a thread that writes them, as
 * long as there are any; what finds no room is dropped, and counted. */

/* lint: allow mutable-static: of the process, as stderr is; guarded by `mutex` */
static struct {
    pthread_mutex_t mutex;
    bool writing;             /* the thread is there */
    size_t len;
    unsigned dropped;         /* texts, since the last that found room */
    char text[OUTPUT_MAX];
} output = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* What waits, taken away; 0: nothing, and the thread has to end. */
static size_t
output_take(char *to)
{
    pthread_mutex_lock(&output.mutex);
    size_t n = output.len;
    memcpy(to, output.text, n);
    output.len = 0;
    output.writing = n > 0;
    pthread_mutex_unlock(&output.mutex);
    return n;
}

static void *
output_thread(void *unused)
{
    char text[OUTPUT_MAX];
    thread_set_name(STDERR_THREAD_NAME);
    for (size_t n; (n = output_take(text)) > 0;)
        for (size_t done = 0; done < n;) {
            ssize_t k = write(STDERR_FILENO, text + done, n - done);
            if (k <= 0)
                break;
            done += (size_t)k;
        }
    return unused;
}

/* With the mutex. */
static bool
output_start(void)
{
    pthread_t thread;
    if (thread_start(&thread, output_thread, NULL) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

static void
output_add(const char *text, size_t n)
{
    char before[80];
    pthread_mutex_lock(&output.mutex);
    int k = output.dropped == 0 ? 0
                                : snprintf(before, sizeof before,
                                           "goloop: reports for which stderr had no room: %u\n",
                                           output.dropped);
    if (output.len + (size_t)k + n <= sizeof output.text &&
        (output.writing || (output.writing = output_start()))) {
        memcpy(output.text + output.len, before, (size_t)k);
        memcpy(output.text + output.len + k, text, n);
        output.len += (size_t)k + n;
        output.dropped = 0;
    } else {
        output.dropped++;
    }
    pthread_mutex_unlock(&output.mutex);
}

static bool
output_ends(void)
{
    pthread_mutex_lock(&output.mutex);
    bool writing = output.writing;
    pthread_mutex_unlock(&output.mutex);
    return !writing;
}

/* ---- blocks --------------------------------------------------------------------------- */

typedef struct {
    void (*tell)(int32_t reactor);
    int32_t reactor;
} report;

static void *
watchdog_report(void *arg)
{
    report r = *(report *)arg;
    free(arg);
    thread_set_name(REPORT_THREAD_NAME);
    r.tell(r.reactor);
    return NULL;
}

static void
watchdog_seen(int32_t reactor, gl_shared *sh, int64_t since)
{
    pthread_t thread;
    if (!sh->watchdog->seen(sh, sh->metrics.blocked_spells + 1))
        return;
    sh->metrics.blocked_spells++;
    sh->blocked_insisted = 0;
    __atomic_store_n(&sh->blocked_told, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&sh->blocked_since, since, __ATOMIC_RELEASE);
    report *r = malloc(sizeof *r);
    if (r == NULL)
        return; /* the end of the block is told */
    *r = (report){sh->watchdog->tell, reactor};
    if (thread_start(&thread, watchdog_report, r) == 0)
        pthread_detach(thread);
    else
        free(r);
}

static void
watchdog_insist(gl_shared *sh, int64_t ns, uint32_t gives_up)
{
    char text[TEXT_MAX];
    size_t n = sh->watchdog->insist(sh, ns, gives_up, text, sizeof text);
    if (n > 0)
        output_add(text, n);
}

/* Ends the process, whether stderr takes a text or not. */
static void
watchdog_gives_up(gl_shared *sh, int64_t ns)
{
    const struct timespec moment = {0, 10000000};
    if (!sh->watchdog->seen(sh, sh->metrics.blocked_spells))
        return; /* Python has ended, and with it all iterations */
    watchdog_insist(sh, ns, 1);
    char text[TEXT_MAX];
    output_add(text, (size_t)goloop_last_words(text, sizeof text));
    for (int i = 0; i < LAST_WORDS && !output_ends(); i++)
        nanosleep(&moment, NULL); /* lint: allow python-under-mutex: it is the end anyway */
    if (!output_ends())
        signal(SIGABRT, SIG_DFL); /* a handler, as faulthandler's, would write there, too */
    abort();
}

void
watchdog_look(int32_t reactor, gl_shared *sh, int64_t now)
{
    int64_t limit = __atomic_load_n(&sh->blocked_limit, __ATOMIC_RELAXED);
    int64_t end = __atomic_load_n(&sh->blocked_end, __ATOMIC_RELAXED);
    int64_t since = __atomic_load_n(&sh->now, __ATOMIC_RELAXED);
    /* Of a process that was stopped, or did not get a processor, nobody is to blame. */
    int64_t ns = now - (since > attentive_since ? since : attentive_since);
    if (sh->watchdog == NULL)
        return;
    if (end > 0 && ns >= end)
        watchdog_gives_up(sh, ns);
    if (limit <= 0 || ns < limit)
        return;
    if (__atomic_load_n(&sh->blocked_since, __ATOMIC_RELAXED) != since) {
        watchdog_seen(reactor, sh, since);
    } else if (!sh->blocked_insisted && ns >= limit + limit / 2) {
        sh->blocked_insisted = 1;
        if (!__atomic_load_n(&sh->blocked_told, __ATOMIC_ACQUIRE))
            watchdog_insist(sh, ns, 0);
    }
}
