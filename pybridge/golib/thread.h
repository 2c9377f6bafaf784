/* thread.h: starting and naming C threads. */
#ifndef GOLOOP_THREAD_H
#define GOLOOP_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts a detached thread that blocks all signals.  Returns 0 or an errno. */
int thread_start(void *(*run)(void *), void *arg);
/* Names the calling thread for ps, top and debuggers; at most 15 bytes. */
void thread_set_name(const char *name);
/* Asks the kernel to run the calling thread soon after it wakes up: see thread.c. */
void thread_set_short_slice(void);
/* Returns the calling thread's id in the system; 1 on systems without futexes. */
uint32_t thread_id(void);

#endif /* GOLOOP_THREAD_H */
