/*
 * thread.c: starts and names the library's C threads: the monitor's and the watchdog's.
 */
#define _GNU_SOURCE 1
#include "thread.h"

#include <signal.h>
#include <stddef.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

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
