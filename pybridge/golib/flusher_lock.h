/* flusher_lock.h: the lock that the monitor has while it flushes, see flusher_lock.c. */
#ifndef GOLOOP_FLUSHER_LOCK_H
#define GOLOOP_FLUSHER_LOCK_H

#include <stdbool.h>

#include "abi.h"

/* Locks and unlocks for the calling thread `me`, a thread_id().  flusher_try_lock() does not wait;
 * it returns false if another thread has the lock. */
bool flusher_try_lock(gl_shared *shared, uint32_t me);
void flusher_unlock(gl_shared *shared, uint32_t me);
/* gl_table.yield_to_flusher: unlocks the shared block until the flusher has finished, then locks it
 * again.  Returns 0. */
int32_t flusher_yield(gl_shared *shared);

#endif /* GOLOOP_FLUSHER_LOCK_H */
