/*
 * shared_lock.c: the loop's side of the lock that it shares with the monitor.
 *
 * The lock is biased: a thread with the GIL takes it by a store and a load, in each write and each
 * turn.  The monitor, which wants it when a callback has run for a millisecond, executes a barrier
 * on all processors first.  abi.h shows both sides.
 *
 * A turn has the lock too, without the GIL.  A call of another thread, which asyncio forbids, then
 * waits here: every write to the shared block and every call of Go follows gl_shared_lock or
 * gl_reactor_api.
 */
#include "threads/threads.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

GL_PRIVATE int
gl_shared_lock_init(PyObject *Py_UNUSED(module))
{
    /* At import there is one thread, and the call returns at once.  With more threads, such as
     * Go's, the first registration takes some milliseconds; the monitor's own is then free. */
#if defined(__linux__) && defined(SYS_membarrier)
    int saved = errno;
    syscall(SYS_membarrier, 1 << 4 /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED */, 0, 0);
    errno = saved;
#endif
    return 0;
}

/* Waits until the monitor, which wants or has the lock, has released it; on return the caller has
 * the lock.  In a forked child, which has no monitor, only clears flusher_lock. */
GL_NO_PYTHON static void
wait_for_monitor(gl_loop *loop)
{
    if (gl_loop_is_foreign(loop)) /* the monitor did not survive the fork */
        __atomic_store_n(&loop->shared->flusher_lock, 0u, __ATOMIC_RELAXED);
    else
        loop->go->yield_to_flusher(loop->shared);
}

/* Keeps later loads after earlier stores.  With membarrier(2) the monitor executes the fence for
 * both threads, and this only stops the compiler; without it this is a full fence.
 * GL_FENCE_IN_USE tells the monitor that C executes the fence. */
static inline void
store_load_barrier(gl_shared *sh)
{
    if (__atomic_load_n(&sh->fence_state, __ATOMIC_RELAXED)) {
        __atomic_store_n(&sh->fence_state, GL_FENCE_IN_USE, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Ends the poll of another thread's turn and waits for the end of the turn, with the GIL, so that
 * values which the caller has read stay valid.  Aborts the process if the poll can't be ended.
 * Returns at once in a forked child.  Cannot deadlock: a turn needs no lock of Python's, and
 * in_turn is cleared before its thread waits for the GIL. */
GL_NO_PYTHON static void
wait_for_turn_end(gl_loop *loop)
{
    if (gl_loop_is_foreign(loop)) /* the thread did not survive the fork */
        return;
    if (GL_READ(loop->sleeping) && !gl_wake_up(loop->shared))
        Py_FatalError("goloop: the thread of an event loop can't be woken for a call of another "
                      "thread: its epoll or eventfd descriptor was closed; use "
                      "loop.call_soon_threadsafe() from other threads");
    /* Not sched_yield: this thread may have a real-time priority on the only processor. */
    const struct timespec pause = {0, 20 * 1000};
    while (__atomic_load_n(&loop->in_turn, __ATOMIC_ACQUIRE))
        nanosleep(&pause, NULL);
}

GL_PRIVATE_INLINE void
gl_shared_lock(gl_loop *loop)
{
    gl_shared *sh = loop ? loop->shared : NULL;
    if (sh == NULL)
        return;
    uint32_t before = __atomic_load_n(&sh->lock_depth, __ATOMIC_RELAXED);
    if (before > 0 && GL_READ(loop->in_turn)) {
        wait_for_turn_end(loop);
        before = __atomic_load_n(&sh->lock_depth, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&sh->lock_depth, before + 1, __ATOMIC_RELAXED);
    if (before > 0)
        return;
    store_load_barrier(sh);
    if (__atomic_load_n(&sh->flusher_lock, __ATOMIC_ACQUIRE))
        wait_for_monitor(loop);
}

GL_PRIVATE_INLINE void
gl_shared_unlock(gl_loop *loop)
{
    gl_shared *sh = loop ? loop->shared : NULL;
    if (sh != NULL)
        __atomic_store_n(&sh->lock_depth, sh->lock_depth - 1, __ATOMIC_RELEASE);
}

GL_PRIVATE_INLINE const gl_table *
gl_reactor_api(gl_loop *loop)
{
    if (GL_READ(loop->in_turn))
        wait_for_turn_end(loop);
    return loop->go;
}

GL_PRIVATE_INLINE void
gl_monitor_resume(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    __atomic_store_n(&sh->loop_active, 1u, __ATOMIC_RELAXED);
    store_load_barrier(sh);
    if (__atomic_load_n(&sh->monitor_parked, __ATOMIC_RELAXED))
        loop->go->wake_monitor(loop->reactor);
}

GL_PRIVATE_INLINE void
gl_monitor_pause(gl_loop *loop)
{
    if (loop->shared != NULL)
        __atomic_store_n(&loop->shared->loop_active, 0u, __ATOMIC_RELAXED);
}
