/* monitor_alarm_pace.h: how late a loop's alarm expires, see monitor_alarm_pace.c. */
#ifndef GOLOOP_ALARM_PACE_H
#define GOLOOP_ALARM_PACE_H

#include <stdbool.h>

#include "abi.h"

typedef struct alarm_pace {
    int64_t alarm, forward; /* ns: from the move to the expiry, and to the next move */
    bool is_far;            /* gl_shared.alarm_is_far */
} alarm_pace;

/* Returns the pace of a loop's alarm until the next call, from the turns since the last one. */
const alarm_pace *pace_update(gl_shared *shared, int64_t now);
/* Returns the time between two ticks. */
int64_t pace_tick_ns(int64_t now);
/* Counts an alarm, which was in vain if no flush follows it. */
void pace_count_alarm(int64_t now);
/* The monitor has sent late writes: the pace is quick again. */
void pace_flushed(void);

#endif /* GOLOOP_ALARM_PACE_H */
