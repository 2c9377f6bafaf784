/* monitor.h: the thread that flushes pending writes during long iterations, see monitor.c. */
#ifndef GOLOOP_MONITOR_H
#define GOLOOP_MONITOR_H

#include "abi.h"

/* Monitors a reactor from now on; the first one starts the thread.  Returns 0, or -errno and the
 * reactor is not monitored. */
int32_t monitor_add_reactor(int32_t reactor, gl_shared *shared);
/* Stops monitoring a reactor: its memory is not used after the return. */
void monitor_remove_reactor(int32_t reactor);

/* Samples that Go has not counted yet. */
extern gl_samples monitor_samples;

/* gl_table.wake_monitor: wakes the monitor if it is parked.  Returns 0. */
int32_t monitor_wake(int32_t reactor);
/* gl_table.move_alarm: moves the loop's alarm, at the present pace.  Returns 0; without alarms the
 * monitor ticks instead.  After a short sleep the loop does not stop the alarm for the next one. */
int32_t monitor_move_alarm(gl_shared *shared, int64_t now);
/* gl_table.stop_alarm: stops the loop's alarm until it is moved.  Returns 0. */
int32_t monitor_stop_alarm(gl_shared *shared);
/* Calls `each` for the block of every reactor, with the monitor's mutex. */
void monitor_each(void (*each)(gl_shared *shared, void *arg), void *arg);
/* Returns the time of CLOCK_MONOTONIC in ns. */
int64_t monitor_now(void);
/* Start a thread that answers the request of a connected client, or sends a trace to it, and closes
 * the connection at the end.  Returns 0, or an errno, and the fd still belongs to the caller. */
int monitor_start_answer(int32_t fd);
int monitor_start_trace(int32_t fd);
/* Starts a thread on which C reports a block.  Without a thread the report is dropped. */
void monitor_start_report(int32_t reactor, gl_shared *shared);

#endif /* GOLOOP_MONITOR_H */
