/* runtime_thread.h: starting and naming C threads. */
#ifndef GOLOOP_THREAD_H
#define GOLOOP_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* Starts a detached thread that blocks all signals, those of faults too: a program may block one in
 * its own threads, and collect it.  Returns 0 or an errno. */
int thread_start(void *(*run)(void *), void *arg);
/* Names the calling thread for ps, top and debuggers; at most 15 bytes. */
void thread_set_name(const char *name);
/* Asks the kernel for the shortest slice of processor time (Linux 6.12): when the calling thread
 * wakes up, it runs before threads with a longer slice, and not only at the end of theirs, up to
 * 4 ms later.  Does nothing where the kernel does not know slices, or a filter refuses the call. */
void thread_set_short_slice(void);
/* Returns the calling thread's id in the system; 1 on systems without futexes. */
uint32_t thread_id(void);

#endif /* GOLOOP_THREAD_H */
