/*
 * monitor_alarm.c: the timers that wake the monitor when a loop makes no turns.
 *
 * The monitor has to wake up when an iteration lasts long.  If it looked at the loop every few
 * milliseconds, it would wake up hundreds of times a second for a loop whose iterations are short.
 * So each loop has a timer of the kernel, its alarm, which the loop's thread moves forward in its
 * turns: a system call each ALARM_FORWARD, without a context switch.  The alarm expires only if no
 * turn comes.
 *
 * A POSIX timer has no descriptor, which a program could close or replace.  It sends a signal to
 * the monitor's thread.  Any number that a program can use would be wrong: the program may block it
 * and collect it by sigwait(), and a thread of goloop that waits for it too would take it.  So the
 * signal is one of libc's own (SIGSETXID), which libc lets no program block, wait for or handle.
 * setuid() sends it to each thread of the process; libc's handler ignores it from any other sender.
 * So an alarm has no effect but to interrupt the monitor's sleep:
 *
 *     alarm_hold --> a tick: an alarm that expires now stays pending --> alarm_wait, which ends at
 *         ^                                                                  once if one is pending
 *         +------------------------------------------------------------------+
 *
 * A thread must not hold the signal for long, or setuid() would wait: so not while it is parked.
 */
#define _GNU_SOURCE 1
#include "monitor_alarm.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#if defined(__linux__)
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Returns a time as seconds and nanoseconds. */
static struct timespec
timespec_of(int64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

#if defined(__GLIBC__) && defined(SYS_timer_create)

#define ALARM_SIGNAL 33

/* Returns true if libc handles the signal: else an alarm would end the process. */
static bool
is_handled(void)
{
    /* Not sigaction(), which refuses the number.  The kernel's struct begins with the handler. */
    uintptr_t action[8] = {0};
    return syscall(SYS_rt_sigaction, ALARM_SIGNAL, NULL, action, sizeof(uint64_t)) == 0 &&
           action[0] != (uintptr_t)SIG_DFL && action[0] != (uintptr_t)SIG_IGN;
}

/* Makes the loop's timer.  Returns 0 or an errno. */
static int
alarm_make(gl_shared *sh, uint32_t thread)
{
    if (!is_handled())
        return ENOSYS;
    struct sigevent event;
    memset(&event, 0, sizeof event);
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = ALARM_SIGNAL;
    event._sigev_un._tid = (int)thread;
    int timer;
    /* Not libc's function, which is in another library before glibc 2.34. */
    if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) != 0)
        return errno;
    __atomic_store_n(&sh->alarm, timer, __ATOMIC_RELAXED);
    return 0;
}

int
alarm_set(gl_shared *sh, uint32_t thread, int64_t ns)
{
    if (sh->alarm < 0) {
        int err = alarm_make(sh, thread);
        if (err != 0)
            return err;
    }
    struct itimerspec at = {.it_value = timespec_of(ns)};
    if (syscall(SYS_timer_settime, sh->alarm, 0, &at, NULL) == 0)
        return 0;
    int err = errno;
    alarm_delete(sh);
    return err;
}

void
alarm_delete(gl_shared *sh)
{
    if (sh->alarm >= 0)
        (void)syscall(SYS_timer_delete, sh->alarm);
    __atomic_store_n(&sh->alarm, -1, __ATOMIC_RELAXED);
}

/* Blocks or unblocks the signal of the alarms in the calling thread. */
static void
set_held(bool held)
{
    /* Not pthread_sigmask(), which leaves out the number. */
    uint64_t set = UINT64_C(1) << (ALARM_SIGNAL - 1);
    int how = SIG_UNBLOCK;
    if (held)
        how = SIG_BLOCK;
    (void)syscall(SYS_rt_sigprocmask, how, &set, NULL, sizeof set);
}

void
alarm_hold(void)
{
    set_held(true);
}

void
alarm_release(void)
{
    set_held(false);
}

bool
alarm_wait(int64_t ns)
{
    struct timespec at_most = timespec_of(ns);
    sigset_t others;
    sigfillset(&others); /* all but libc's own signals */
    return ppoll(NULL, 0, &at_most, &others) < 0;
}

#else /* systems without timers that wake one thread */

int
alarm_set(gl_shared *sh, uint32_t thread, int64_t ns)
{
    (void)sh;
    (void)thread;
    (void)ns;
    return ENOSYS;
}

void
alarm_delete(gl_shared *sh)
{
    (void)sh;
}

void
alarm_hold(void)
{
}

void
alarm_release(void)
{
}

bool
alarm_wait(int64_t ns)
{
    struct timespec time = timespec_of(ns);
    nanosleep(&time, NULL);
    return false;
}

#endif
