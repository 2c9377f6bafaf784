/*
 * introspect.c: where the GIL is held, the monitor answers the clients that ask this process.
 *
 * A thread of Python's answers (goloop/_internal/observe/introspection.py), which needs the GIL.  Where it does
 * not get it though somebody waits (core/observe/asker.c), this has Go answer: introspect.go tells what
 * the shared blocks and the watchdog know, and says that it is not all ("partial").
 *
 * introspect_look is the monitor thread's, with its lock; each answer has a thread of its own, so
 * that no client can hold up the monitor.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "_cgo_export.h"
#include "introspect.h"
#include "thread.h"

/* Python has been given so long to come. */
#define PATIENCE_NS 500000000

static void *
introspect_answer(void *arg)
{
    thread_set_name("goloop-answer");
    goloop_answer((int32_t)(intptr_t)arg);
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
