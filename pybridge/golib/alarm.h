/* alarm.h: the timers that wake the monitor when a loop makes no turns, see alarm.c. */
#ifndef GOLOOP_ALARM_H
#define GOLOOP_ALARM_H

#include <stdbool.h>

#include "abi.h"

/* The result of alarm_wait(). */
typedef enum alarm_result {
    ALARM_TIMEOUT, /* no timer has expired */
    ALARM_EXPIRED, /* a timer has expired */
    ALARM_REFUSED, /* another sender uses the signal: call alarm_sleep() from now on */
} alarm_result;

/* Sets the loop's timer to `ns` from now, or stops it if `ns` is 0; the first call makes the timer,
 * which wakes `thread`, a thread_id().  Returns 0; or an errno, and the loop has no timer. */
int alarm_set(gl_shared *shared, uint32_t thread, int64_t ns);
/* Deletes the loop's timer, if it has one. */
void alarm_delete(gl_shared *shared);
/* Waits until a timer that wakes the calling thread expires, at most `ns`. */
alarm_result alarm_wait(int64_t ns);
/* Sleeps for `ns`, without alarms. */
void alarm_sleep(int64_t ns);

#endif /* GOLOOP_ALARM_H */
