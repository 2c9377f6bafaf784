/* watchdog.h: tells of an iteration that lasts too long, see watchdog.c. */
#ifndef GOLOOP_WATCHDOG_H
#define GOLOOP_WATCHDOG_H

#include "abi.h"

/* The monitor is at work again, at `now`: what happened before it did not see. */
void watchdog_wakes(int64_t now);
/* Looks at a loop that is awake.  With the monitor's lock. */
void watchdog_look(int32_t reactor, gl_shared *shared, int64_t now);

#endif /* GOLOOP_WATCHDOG_H */
