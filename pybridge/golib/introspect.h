/* introspect.h: answers clients that ask a process whose GIL is held, see introspect.c. */
#ifndef GOLOOP_INTROSPECT_H
#define GOLOOP_INTROSPECT_H

#include "abi.h"

/* The monitor has seen that an iteration lasts: looks whether somebody waits for an answer. */
void introspect_look(gl_asker *asker, int64_t now);

/* Of monitor.c: calls `each` for every reactor, with the monitor's lock. */
void monitor_each(void (*each)(gl_shared *shared, void *arg), void *arg);
int64_t monitor_now(void);

#endif /* GOLOOP_INTROSPECT_H */
