/*
 * submissions.c: the queue of submissions, which Go decodes at the start of each turn; and the
 * order in which the writes of several connections are sent.
 *
 *     gl_submit --> queue --the next turn--> decoded, empty
 *
 * Data sent on one connection is never overtaken by data that was written later to another.
 * gl_defer_sends() is therefore called for each write that waits for the turn, and stops the eager
 * sends of this turn; and gl_flush_deferred_sends() before each send, shutdown or connect that does
 * not wait.
 *
 * The queue is in the shared block, so the caller has the shared lock (shared_lock.c).
 */
#include "threads/threads.h"

#define GL_SUB_INITIAL 256u /* the first capacity of the queue */
#define GL_SUB_KEEP 65536u  /* capacity that is kept after a burst */

GL_PRIVATE void
gl_submissions_trim(gl_loop *loop)
{
    if (loop->shared->sub_cap <= GL_SUB_KEEP || loop->shared->sub_len != 0)
        return;
    gl_shared_lock(loop);
    gl_submission *p = PyMem_RawRealloc(loop->shared->sub, GL_SUB_INITIAL * sizeof(gl_submission));
    if (p) {
        loop->shared->sub = p;
        loop->shared->sub_cap = GL_SUB_INITIAL;
    }
    gl_shared_unlock(loop);
}

GL_NO_PYTHON GL_PRIVATE_INLINE void
gl_defer_sends(gl_loop *loop)
{
    loop->eager_sends_left = 0;
    loop->sends_deferred = 1;
}

/* Calls Go, which sends the queues of all streams.  Only clears `sends_deferred` for a closed or
 * foreign loop. */
GL_NO_PYTHON static void
flush_deferred_sends(gl_loop *loop)
{
    loop->sends_deferred = 0;
    if (loop->go == NULL || gl_loop_is_foreign(loop))
        return;
    const gl_table *go = gl_reactor_api(loop);
    if (go != NULL)
        go->flush(loop->reactor);
}

GL_NO_PYTHON GL_PRIVATE_INLINE void
gl_flush_deferred_sends(gl_loop *loop)
{
    if (loop->sends_deferred)
        flush_deferred_sends(loop);
}

GL_PRIVATE_INLINE int
gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen, int64_t arg)
{
    gl_shared *sh = loop->shared;
    if (!gl_grow(&sh->sub, &sh->sub_cap, sh->sub_len, sizeof(*sh->sub), GL_SUB_INITIAL)) {
        PyErr_NoMemory();
        return -1;
    }
    sh->sub[sh->sub_len++] = (gl_submission){.op = op, .id = id, .gen = gen, .arg = arg};
    if (op == GL_SUB_STREAM) {
        loop->dirty = 1;
        __atomic_store_n(&sh->sends_pending, 1u, __ATOMIC_RELAXED);
        if (sh->alarm_is_far)
            loop->go->move_alarm(sh, gl_monotonic_ns());
    }
    return 0;
}
