/* monitor_alarm.h: the timers that wake the monitor when a loop makes no turns.  See
 * monitor_alarm.c. */
#ifndef GOLOOP_ALARM_H
#define GOLOOP_ALARM_H

#include <stdbool.h>

#include "abi.h"

/* Sets the loop's timer to `ns` from now, or stops it if `ns` is 0; the first call makes the timer,
 * which wakes `thread`, a thread_id().  Returns 0; or an errno, and the loop has no timer. */
int alarm_set(gl_shared *shared, uint32_t thread, int64_t ns);
/* Deletes the loop's timer, if it has one. */
void alarm_delete(gl_shared *shared);
/* Lets alarms that expire in the calling thread stay pending until alarm_wait(). */
void alarm_hold(void);
/* Ends alarm_hold(): alarms that expire have no effect. */
void alarm_release(void);
/* Waits until a timer that wakes the calling thread expires, at most `ns`; returns true if one has
 * expired since alarm_hold().  Can return true without a timer. */
bool alarm_wait(int64_t ns);

#endif /* GOLOOP_ALARM_H */
