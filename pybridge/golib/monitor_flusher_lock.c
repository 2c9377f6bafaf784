/*
 * monitor_flusher_lock.c: the lock that the monitor has while it flushes a loop's pending writes.
 *
 * The lock is a futex with priority inheritance (gl_shared.flusher_lock).  The monitor only tries
 * to lock it.  A loop's thread that finds it locked has the GIL, and perhaps a real-time priority
 * on the processor on which the monitor was interrupted: if it only yielded, the monitor would
 * never run there.  So the loop's thread yields FLUSHER_YIELDS times, then waits in the kernel and
 * lends its priority to the owner of the lock.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#endif

#include "monitor_flusher_lock.h"
#include "runtime_thread.h"

#define FLUSHER_YIELDS 20 /* attempts before the thread waits in the kernel */

bool
flusher_try_lock(gl_shared *sh, uint32_t me)
{
    uint32_t unlocked = 0;
    return __atomic_compare_exchange_n(&sh->flusher_lock, &unlocked, me, false, __ATOMIC_SEQ_CST,
                                       __ATOMIC_RELAXED);
}

/* Locks for the thread `me`: yields FLUSHER_YIELDS times, then waits in the kernel. */
static void
flusher_lock(gl_shared *sh, uint32_t me)
{
    for (int i = 0; !flusher_try_lock(sh, me); i++) {
        if (i < FLUSHER_YIELDS) {
            sched_yield();
            continue;
        }
#if defined(__linux__)
        if (syscall(SYS_futex, &sh->flusher_lock, FUTEX_LOCK_PI_PRIVATE, 0, NULL, NULL, 0) == 0)
            return;
#endif
        /* The processor is free for the owner of the lock meanwhile. */
        const struct timespec moment = {0, 50000};
        nanosleep(&moment, NULL);
    }
}

void
flusher_unlock(gl_shared *sh, uint32_t me)
{
    if (__atomic_compare_exchange_n(&sh->flusher_lock, &me, 0u, false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_RELAXED))
        return;
#if defined(__linux__)
    syscall(SYS_futex, &sh->flusher_lock, FUTEX_UNLOCK_PI_PRIVATE, 0, NULL, NULL, 0);
#endif
}

int32_t
flusher_yield(gl_shared *sh)
{
    int saved = errno;
    uint32_t me = thread_id();
    __atomic_store_n(&sh->lock_depth, 0u, __ATOMIC_SEQ_CST);
    flusher_lock(sh, me);
    __atomic_store_n(&sh->lock_depth, 1u, __ATOMIC_SEQ_CST);
    flusher_unlock(sh, me);
    errno = saved;
    return 0;
}
