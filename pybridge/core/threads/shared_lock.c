/*
 * shared_lock.c: the loop's side of the lock that it shares with the monitor.
 *
 * The lock is biased: the GIL's holder takes it by a store and a look, in each write and each
 * turn, while the monitor, which wants it when a callback goes on for a millisecond, makes all
 * processors agree first.  abi.h draws both sides.
 *
 * A turn holds the lock too, without the GIL.  A call of another thread, which asyncio forbids,
 * then waits here: all that C writes for Go, and each other call of Go's, follows gl_shared_lock or gl_reactor_api.
 */
#include "threads/threads.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* At import, when there is one thread: the kernel answers at once.  The monitor asks again, which
 * costs nothing then, but some milliseconds beside other threads, as Go's. */
GL_PRIVATE int
gl_shared_lock_init(PyObject *Py_UNUSED(module))
{
#if defined(__linux__) && defined(SYS_membarrier)
    int saved = errno;
    syscall(SYS_membarrier, 1 << 4 /* MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED */, 0, 0);
    errno = saved;
#endif
    return 0;
}

/* The monitor wants the reactor, or has it. */
GL_NO_PYTHON static void
hold_wait(gl_loop *loop)
{
    if (gl_loop_is_foreign(loop)) /* it has stayed in the parent */
        __atomic_store_n(&loop->shared->flusher_lock, 0u, __ATOMIC_RELAXED);
    else
        loop->go->yield_to_flusher(loop->shared);
}

/* What was stored before is seen before the next load is done: by the compiler's order and the
 * monitor's membarrier, or where there is none by a fence.  A 2 in `fenced`: the GIL's holder knows. */
static inline void
hold_cross(gl_shared *sh)
{
    if (__atomic_load_n(&sh->fence_state, __ATOMIC_RELAXED)) {
        __atomic_store_n(&sh->fence_state, GL_FENCE_IN_USE, __ATOMIC_RELAXED);
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    }
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* With the GIL, so that what the caller has read stays true.  No deadlock: a turn takes nothing of
 * Python's, and the thread that makes it says that it is over before it wants the GIL. */
GL_NO_PYTHON static void
hold_wait_for_turn(gl_loop *loop)
{
    if (gl_loop_is_foreign(loop)) /* the thread has stayed in the parent */
        return;
    if (GL_READ(loop->sleeping) && !gl_wake_up(loop->shared))
        Py_FatalError("goloop: the thread of an event loop can't be woken for a call of another "
                      "thread: its epoll or eventfd descriptor was closed; use "
                      "loop.call_soon_threadsafe() from other threads");
    /* Not sched_yield: this thread may have a priority for real time on the only processor. */
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
        hold_wait_for_turn(loop);
        before = __atomic_load_n(&sh->lock_depth, __ATOMIC_RELAXED);
    }
    __atomic_store_n(&sh->lock_depth, before + 1, __ATOMIC_RELAXED);
    if (before > 0)
        return;
    hold_cross(sh);
    if (__atomic_load_n(&sh->flusher_lock, __ATOMIC_ACQUIRE))
        hold_wait(loop);
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
        hold_wait_for_turn(loop);
    return loop->go;
}

GL_PRIVATE_INLINE void
gl_monitor_resume(gl_loop *loop)
{
    gl_shared *sh = loop->shared;
    __atomic_store_n(&sh->loop_active, 1u, __ATOMIC_RELAXED);
    hold_cross(sh);
    if (__atomic_load_n(&sh->monitor_parked, __ATOMIC_RELAXED))
        loop->go->wake_monitor(loop->reactor);
}

GL_PRIVATE_INLINE void
gl_monitor_pause(gl_loop *loop)
{
    if (loop->shared != NULL)
        __atomic_store_n(&loop->shared->loop_active, 0u, __ATOMIC_RELAXED);
}
