/*
 * slack.c: a large timer slack for Go's own threads, so that they wake up rarely.
 *
 * Go's monitor thread (runtime.sysmon) checks every 20 us for processors (Ps) that it can take from
 * long calls, and repeats that for 50 rounds after it has taken one.  For sysmon the time in which
 * a loop's thread runs Python is such a long call.  If the Python code of a turn takes
 * milliseconds, the thread loses its processor some hundred times a second, and sysmon never rests.
 * On one core under aiohttp these were 3,500 wake-ups a second and 12 % of the core.  The checks
 * are useless here: each reactor has a processor, and one more is idle
 * (golib/runtime_gomaxprocs.go).
 *
 * A new thread inherits the timer slack of its creator (PR_SET_TIMERSLACK in prctl(2)), so the
 * slack of the thread that starts the library applies to all of Go's threads.  C's threads, which
 * need exact timers, are started later, by a thread of Python.
 */
#include "runtime/private.h"

#if defined(__linux__)
#include <sys/prctl.h>
#endif

#define GL_GO_SLACK 10000000ul /* ns */

GL_PRIVATE long
timer_slack_raise(void)
{
#if defined(PR_SET_TIMERSLACK)
    long before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
    if (before > 0 && prctl(PR_SET_TIMERSLACK, GL_GO_SLACK, 0, 0, 0) == 0)
        return before;
#endif
    return 0;
}

GL_PRIVATE void
timer_slack_restore(long before)
{
#if defined(PR_SET_TIMERSLACK)
    if (before > 0)
        (void)prctl(PR_SET_TIMERSLACK, (unsigned long)before, 0, 0, 0);
#else
    (void)before;
#endif
}
