/*
 * submissions.c: the queue of what C asks Go for, decoded at the start of each turn.
 *
 *     gl_submit --in a turn (another thread)--> late --after the turn--> queue
 *         |
 *         +--else--> queue --the next turn--> decoded, empty
 *
 * The queue lies in the block that Go uses too, so only the thread that has the GIL while
 * Go is outside may touch it, and holds the loop meanwhile (hold.c).
 */
#include "state/state.h"

#define GL_SUB_INITIAL 256u
#define GL_SUB_KEEP 65536u /* room that is kept after a burst */

GL_PRIVATE void
gl_submissions_trim(gl_loop *loop)
{
    if (loop->shared->sub_cap <= GL_SUB_KEEP || loop->shared->sub_len != 0)
        return;
    gl_hold(loop);
    gl_submission *p =
        PyMem_RawRealloc(loop->shared->sub, GL_SUB_INITIAL * sizeof(gl_submission));
    if (p) {
        loop->shared->sub = p;
        loop->shared->sub_cap = GL_SUB_INITIAL;
    }
    gl_let_go(loop);
}

GL_PRIVATE int
gl_submissions_join_late(gl_loop *loop)
{
    uint32_t n = loop->late_len;
    loop->late_len = 0;
    for (uint32_t i = 0; i < n; i++) {
        const gl_submission *s = &loop->late[i];
        if (s->op == GL_SUB_TIMER_ARM && s->arg < loop->shared->next_deadline)
            loop->shared->next_deadline = s->arg;
        if (gl_submit(loop, s->op, s->id, s->gen, s->arg) < 0)
            return -1;
    }
    return 0;
}

GL_PRIVATE_INLINE int
gl_submit(gl_loop *loop, uint32_t op, uint32_t id, uint32_t gen, int64_t arg)
{
    gl_shared *sh = loop->shared;
    gl_submission *s = NULL;
    gl_hold(loop);
    /* asyncio forbids calls of another thread while the loop runs, but does not break on them, and
     * nor may we. */
    if (!loop->in_turn && gl_grow(&sh->sub, &sh->sub_cap, sh->sub_len, sizeof(*s), GL_SUB_INITIAL))
        s = &sh->sub[sh->sub_len++];
    else if (loop->in_turn && gl_grow(&loop->late, &loop->late_cap, loop->late_len, sizeof(*s), 16))
        s = &loop->late[loop->late_len++];
    if (s == NULL) {
        gl_let_go(loop);
        PyErr_NoMemory();
        return -1;
    }
    s->op = op;
    s->id = id;
    s->gen = gen;
    s->unused = 0;
    s->arg = arg;
    if (op == GL_SUB_STREAM) {
        loop->dirty = 1;
        __atomic_store_n(&sh->unsent, 1u, __ATOMIC_RELAXED);
    }
    gl_let_go(loop);
    return 0;
}
