/*
 * thread.c: starts and names the library's C threads: the monitor's and the watchdog's.
 */
#define _GNU_SOURCE 1
#include "thread.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#endif

#define SHORTEST_SLICE_NS 100000

/* Starts a detached thread that blocks all signals except those of faults.  Returns 0 or an
 * errno. */
int
thread_start(void *(*run)(void *), void *arg)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    pthread_t thread;
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int err = pthread_create(&thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (err == 0)
        pthread_detach(thread);
    return err;
}

/* Names the calling thread for ps, top and debuggers; at most 15 bytes. */
void
thread_set_name(const char *name)
{
#if defined(__linux__)
    pthread_setname_np(pthread_self(), name);
#else
    (void)name;
#endif
}

/* Asks the kernel for the shortest slice of processor time (Linux 6.12): when the calling thread
 * wakes up, it runs before threads with a longer slice, and not only at the end of theirs, up to
 * 4 ms later.  Does nothing where the kernel does not know slices, or a filter refuses the call. */
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

/* Returns the calling thread's id in the system; 1 on systems without futexes. */
uint32_t
thread_id(void)
{
#if defined(__linux__)
    return (uint32_t)syscall(SYS_gettid);
#else
    return 1;
#endif
}
