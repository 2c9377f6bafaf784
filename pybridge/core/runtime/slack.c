/*
 * slack.c: how punctual Go's own threads are: not at all.
 *
 * Go's monitor thread (runtime.sysmon) looks every 20 us for processors to take away from
 * long calls, and goes on for 50 rounds after it has taken one.  A loop's thread is in such
 * a call whenever it runs Python, so it loses its processor some hundred times a second
 * where a turn's Python takes milliseconds; then the monitor never rests.  On one core
 * that was 3,500 wake-ups and 12 % of the core under aiohttp.  Nothing here needs that
 * look: each reactor has a processor, and one more is idle (golib/gomaxprocs.go).
 *
 * A thread has the timer slack of the one that made it (PR_SET_TIMERSLACK in prctl(2)), so
 * that it has while the library starts decides for all of Go's threads.  Those of C, which
 * do keep time, start later, by a thread of Python's.
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
