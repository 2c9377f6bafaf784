/* monitor_flusher_lock.h: the lock that the monitor has while it flushes.  See
 * monitor_flusher_lock.c. */
#ifndef GOLOOP_FLUSHER_LOCK_H
#define GOLOOP_FLUSHER_LOCK_H

#include <stdbool.h>

#include "abi.h"

/* Locks for the thread `me` without waiting; false if another thread has the lock. */
bool flusher_try_lock(gl_shared *shared, uint32_t me);
/* Unlocks for the thread `me`, and wakes a thread that waits in the kernel. */
void flusher_unlock(gl_shared *shared, uint32_t me);
/* gl_table.yield_to_flusher: releases the caller's shared lock, waits until the flusher has
 * finished, and locks it again.  Keeps errno.  Returns 0. */
int32_t flusher_yield(gl_shared *shared);

#endif /* GOLOOP_FLUSHER_LOCK_H */
