/*
 * watchdog.c: tells C of an iteration of a loop that lasts too long, while it lasts.
 *
 *     quiet --now - shared.now > limit--> seen: C notes the stack, a thread waits for the GIL
 *       ^                                   |
 *       |  the iteration ends, and C        | half a limit later, the thread has no GIL
 *       |  tells it                         v
 *       +------------------------------- insisted: C writes to stderr, without the GIL
 *                                           |
 *                                           v blocked_end: C ends the process
 *
 * Used by the monitor's thread alone, with its lock.
 */
#define _GNU_SOURCE 1
#include <stdlib.h>

#include "thread.h"
#include "watchdog.h"

/* lint: allow mutable-static: the monitor thread's own */
static int64_t attentive_since;

void
watchdog_wakes(int64_t now)
{
    attentive_since = now;
}

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
    sh->blocked_spells++;
    sh->blocked_insisted = 0;
    __atomic_store_n(&sh->blocked_told, 0u, __ATOMIC_RELAXED);
    sh->watchdog->seen(sh);
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
        sh->watchdog->insist(sh, ns, 1);
    if (limit <= 0 || ns < limit)
        return;
    if (__atomic_load_n(&sh->blocked_since, __ATOMIC_RELAXED) != since) {
        watchdog_seen(reactor, sh, since);
    } else if (!sh->blocked_insisted && ns >= limit + limit / 2) {
        sh->blocked_insisted = 1;
        if (!__atomic_load_n(&sh->blocked_told, __ATOMIC_ACQUIRE))
            sh->watchdog->insist(sh, ns, 0);
    }
}
