/* monitor.h: sends what a long iteration has left unsent, see monitor.c. */
#ifndef GOLOOP_MONITOR_H
#define GOLOOP_MONITOR_H

#include "abi.h"

/* The monitor looks after a reactor.  0 or -errno. */
int32_t monitor_reactor_opened(int32_t reactor, gl_shared *shared);
/* It does no longer, and touches the reactor and its shared block no more. */
void monitor_reactor_closes(int32_t reactor);

/* Those that Go has not counted yet. */
extern gl_samples monitor_samples;

/* gl_table.wake_monitor and yield_to_flusher */
int32_t monitor_watch(int32_t reactor);
int32_t monitor_yield_to_flusher(gl_shared *shared);
/* Calls `each` for every reactor, with the monitor's lock. */
void monitor_each(void (*each)(gl_shared *shared, void *arg), void *arg);
int64_t monitor_now(void);
/* Starts a thread that answers the request of a connected client, or sends a trace to it.  Returns
 * 0 or an errno. */
int monitor_start_answer(int32_t fd);
int monitor_start_trace(int32_t fd);
/* Has C report a block, on a thread made for that. */
void monitor_reports(int32_t reactor, gl_shared *shared);

#endif /* GOLOOP_MONITOR_H */
