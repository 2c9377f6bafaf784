/*
 * alarm.c: the timers that wake the monitor when a loop makes no turns.
 *
 * The monitor has to wake up when an iteration lasts long.  If it looked at the loop every few
 * milliseconds, it would wake up hundreds of times a second for a loop whose iterations are short.
 * So each loop has a timer of the kernel, its alarm, which the loop's thread moves forward in its
 * turns: a system call each ALARM_FORWARD, without a context switch.  The alarm expires only if no
 * turn comes.
 *
 * A POSIX timer has no descriptor, which a program could close or replace.  It sends a signal to
 * the monitor's thread, which blocks all signals and waits for this one.  No handler is installed,
 * and no other thread gets the signal.  While the monitor waits, the kernel may give it the same
 * signal if another process sends it to this one, and all other threads block it.  Then the monitor
 * sends it again and waits without alarms from then on, as it does where the system refuses timers.
 */
#define _GNU_SOURCE 1
#include "alarm.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

/* Returns a time as seconds and nanoseconds. */
static struct timespec
timespec_of(int64_t ns)
{
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

/* Sleeps for `ns`, without alarms. */
void
alarm_sleep(int64_t ns)
{
    struct timespec time = timespec_of(ns);
    nanosleep(&time, NULL);
}

#if defined(__linux__) && defined(SYS_timer_create)

/* A signal that neither libc nor Go uses.  Go's runtime unblocks the numbers below 35. */
#define ALARM_SIGNAL 58

/* Makes the loop's timer.  Returns 0 or an errno. */
static int
alarm_make(gl_shared *sh, uint32_t thread)
{
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

/* Sets the loop's timer to `ns` from now, or stops it if `ns` is 0; the first call makes the timer,
 * which wakes `thread`, a thread_id().  Returns 0; or an errno, and the loop has no timer. */
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

/* Deletes the loop's timer, if it has one. */
void
alarm_delete(gl_shared *sh)
{
    if (sh->alarm >= 0)
        (void)syscall(SYS_timer_delete, sh->alarm);
    __atomic_store_n(&sh->alarm, -1, __ATOMIC_RELAXED);
}

/* Waits until a timer that wakes the calling thread expires, at most `ns`. */
alarm_result
alarm_wait(int64_t ns)
{
    struct timespec at_most = timespec_of(ns);
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, ALARM_SIGNAL);
    if (sigtimedwait(&set, &info, &at_most) < 0) /* EAGAIN: the time is over */
        return ALARM_TIMEOUT;
    if (info.si_code == SI_TIMER)
        return ALARM_EXPIRED;
    (void)sigqueue(getpid(), ALARM_SIGNAL, info.si_value);
    return ALARM_REFUSED;
}

#else

/* Returns ENOSYS: this system has no timers that wake one thread. */
int
alarm_set(gl_shared *sh, uint32_t thread, int64_t ns)
{
    (void)sh;
    (void)thread;
    (void)ns;
    return ENOSYS;
}

/* Does nothing: there are no timers. */
void
alarm_delete(gl_shared *sh)
{
    (void)sh;
}

/* Sleeps for `ns`. */
alarm_result
alarm_wait(int64_t ns)
{
    alarm_sleep(ns);
    return ALARM_TIMEOUT;
}

#endif
