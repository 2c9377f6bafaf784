/*
 * submissions.c: the queue of what C asks Go for, decoded at the start of each turn.
 *
 *     gl_submit --> queue --the next turn--> decoded, empty
 *
 * The queue lies in the block that Go uses too, so a caller holds the loop (hold.c).
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
        __atomic_store_n(&sh->unsent, 1u, __ATOMIC_RELAXED);
    }
    return 0;
}
