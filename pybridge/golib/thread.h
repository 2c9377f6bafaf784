/* thread.h: threads of C. */
#ifndef GOLOOP_THREAD_H
#define GOLOOP_THREAD_H

#include <pthread.h>

/* Starts a detached thread that takes no signal, but for faults.  0 or an errno. */
int thread_start(void *(*run)(void *), void *arg);
/* Names the calling thread for ps, top and debuggers, by at most 15 bytes. */
void thread_set_name(const char *name);

#endif /* GOLOOP_THREAD_H */
