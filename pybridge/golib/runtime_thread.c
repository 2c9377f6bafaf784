/*
 * runtime_thread.c: starts and names the library's threads.
 */
#define _GNU_SOURCE 1
#include "runtime_thread.h"

#include "abi.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#define SHORTEST_SLICE_NS 100000

int
thread_start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    sigset_t blocked, before;
    sigfillset(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int err = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == 0)
        pthread_detach(thread);
    return err;
}

/* ---- Go's threads ------------------------------------------------------------------------
 *
 * The linker's --wrap makes runtime/cgo, and thread_start(), call the function here instead of
 * libc's.  So each thread of Go has a name, by which runtime_other_threads.go recognises it, from
 * its first instructions on. */

#if defined(__linux__)

typedef void *thread_body(void *arg);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_body *run,
                          void *arg);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_body *run,
                          void *arg) __attribute__((weak));

/* The function of a new thread and its argument. */
typedef struct thread_call {
    thread_body *run;
    void *arg;
} thread_call;

/* Names the thread and calls its function; the body of each thread. */
static void *
run_named(void *arg)
{
    thread_call call = *(thread_call *)arg;
    free(arg);
    thread_set_name(GO_THREAD_NAME);
    return call.run(call.arg);
}

/* Replacement of pthread_create(): the thread has Go's name until it sets another one.  Returns 0
 * or an errno. */
int
__wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, thread_body *run,
                      void *arg)
{
    if (__real_pthread_create == NULL) /* linked without --wrap */
        return ENOSYS;
    thread_call *call = malloc(sizeof *call);
    if (call == NULL)
        return EAGAIN;
    *call = (thread_call){run, arg};
    int err = __real_pthread_create(thread, attributes, run_named, call);
    if (err != 0)
        free(call);
    return err;
}

#endif

/* ---- all threads ------------------------------------------------------------------------- */

void
thread_set_name(const char *name)
{
#if defined(__linux__)
    pthread_setname_np(pthread_self(), name);
#else
    (void)name;
#endif
}

void
thread_set_short_slice(void)
{
#if defined(__linux__) && defined(SYS_sched_setattr)
    /* struct sched_attr of sched(7) in its first version; libc has no declaration of it. */
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* ns */
    } slice = {.size = sizeof slice, .policy = SCHED_OTHER, .runtime = SHORTEST_SLICE_NS};
    slice.nice = getpriority(PRIO_PROCESS, 0); /* unchanged */
    if (sched_getscheduler(0) == SCHED_OTHER)
        (void)syscall(SYS_sched_setattr, 0, &slice, 0);
#endif
}

uint32_t
thread_id(void)
{
#if defined(__linux__)
    return (uint32_t)syscall(SYS_gettid);
#else
    return 1;
#endif
}
