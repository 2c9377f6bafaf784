/*
 * watchdog.c: tells C of an iteration of a loop that lasts too long, while it lasts.
 *
 *     quiet --now - shared.now > limit--> seen: C notes the stack, a thread waits for the GIL
 *       ^                                 | ^
 *       |  the iteration ends, and C      | | at 2, 4 and 8 times the limit
 *       |  tells it                       v |
 *       +------------------------------- insisted: half a limit later the log has no report.  Go's
 *                                           |      text goes to stderr, without the GIL
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
/* Python has so long to report, at least: each thread that computes keeps the GIL for 5 ms. */
#define GRACE_NS 100000000
#define WATCHED_PART 128 /* of its limit: from then on a block is watched */
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

static void
output_add(const char *text, size_t n, bool json)
{
    char before[80];
    pthread_mutex_lock(&output.mutex);
    int k = output.dropped == 0 ? 0
                                : snprintf(before, sizeof before,
                                           json ? "{\"logger\":\"goloop\",\"reports_dropped\":%u}\n"
                                                : "goloop: reports for which stderr had no room: %u\n",
                                           output.dropped);
    if (output.len + (size_t)k + n <= sizeof output.text &&
        (output.writing || (output.writing = thread_start(output_thread, NULL) == 0))) {
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

/* lint: allow mutable-static: of the process; constant once a block was seen */
static const gl_watchdog *reporter;

static void *
watchdog_report(void *reactor)
{
    thread_set_name(REPORT_THREAD_NAME);
    reporter->tell((int32_t)(intptr_t)reactor);
    return NULL;
}

static void
watchdog_seen(int32_t reactor, gl_shared *sh, int64_t since, uint32_t look)
{
    uint64_t serial = sh->metrics.blocked_spells + (look == 0);
    uint32_t told = look == 0 ? GL_REPORTED : __atomic_load_n(&sh->blocked_told, __ATOMIC_ACQUIRE);
    if (!sh->watchdog->seen(sh, serial, look))
        return;
    sh->metrics.blocked_spells = serial;
    sh->blocked_looks = look + 1;
    if (look == 0)
        sh->blocked_insisted = 0;
    if (told == GL_REPORTED)
        __atomic_store_n(&sh->blocked_told, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&sh->blocked_since, since, __ATOMIC_RELEASE);
    reporter = sh->watchdog;
    if (told != 0) /* else the thread of the last look still waits */
        (void)thread_start(watchdog_report, (void *)(intptr_t)reactor);
}

static void
watchdog_insist(gl_shared *sh, int64_t ns, uint32_t gives_up)
{
    char text[TEXT_MAX];
    if (sh->blocked_held)
        (void)sh->watchdog->seen(sh, sh->metrics.blocked_spells, GL_LOOKS);
    size_t n = goloop_block_text(sh, ns, gives_up, text, sizeof text);
    if (n > 0)
        output_add(text, n, sh->flags & GL_JSON);
}

/* Ends the process, whether stderr takes a text or not. */
static void
watchdog_gives_up(gl_shared *sh, int64_t ns)
{
    const struct timespec moment = {0, 10000000};
    if (!sh->watchdog->seen(sh, sh->metrics.blocked_spells, GL_LOOKS - 1))
        return; /* Python has ended, and with it all iterations */
    watchdog_insist(sh, ns, 1);
    char text[TEXT_MAX];
    output_add(text, (size_t)goloop_last_words(text, sizeof text), false);
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
    if (limit <= 0 || ns < limit / WATCHED_PART)
        return;
    sh->watchdog->watch(sh, since, now);
    bool seen = __atomic_load_n(&sh->blocked_since, __ATOMIC_RELAXED) == since;
    uint32_t looks = seen ? sh->blocked_looks : 0;
    int64_t grace = limit / 2 > GRACE_NS ? limit / 2 : GRACE_NS;
    if (looks < GL_LOOKS && ns >= limit << looks) {
        watchdog_seen(reactor, sh, since, looks);
    } else if (seen && sh->blocked_insisted < looks &&
               ns >= (limit << (sh->blocked_insisted ? looks - 1 : 0)) + grace) {
        if (__atomic_load_n(&sh->blocked_told, __ATOMIC_ACQUIRE) != GL_REPORTED)
            watchdog_insist(sh, ns, 0);
        sh->blocked_insisted = looks;
    }
}
