/*
 * loops.c: the loops of this process.
 *
 * Guarded by the GIL, or without one by G.loops_mutex.
 */
#include "state/state.h"

GL_PRIVATE void
gl_loops_add(gl_loop *loop)
{
    GL_LOCK(loops_mutex);
    loop->next_loop = G.first_loop;
    loop->prev_loop = NULL;
    if (G.first_loop != NULL)
        G.first_loop->prev_loop = loop;
    G.first_loop = loop;
    GL_UNLOCK(loops_mutex);
}

GL_PRIVATE void
gl_loops_remove(gl_loop *loop)
{
    GL_LOCK(loops_mutex);
    if (loop->next_loop != NULL)
        loop->next_loop->prev_loop = loop->prev_loop;
    if (loop->prev_loop != NULL)
        loop->prev_loop->next_loop = loop->next_loop;
    else if (G.first_loop == loop)
        G.first_loop = loop->next_loop;
    loop->next_loop = NULL;
    loop->prev_loop = NULL;
    GL_UNLOCK(loops_mutex);
}

GL_PRIVATE gl_loop_list
gl_loops_all(bool closed)
{
    /* A loop is removed from the list before it is freed.  It is still in the list while callbacks
     * of its weak references run; gl_try_newref() then fails, and the loop is left out. */
    gl_loop_list list = {NULL, 0, 0};
    GL_LOCK(loops_mutex);
    for (gl_loop *loop = G.first_loop; loop != NULL; loop = loop->next_loop)
        if (!gl_loop_is_foreign(loop) && (closed || GL_READ(loop->go) != NULL) &&
            gl_grow(&list.item, &list.cap, list.len, sizeof(*list.item), 8) &&
            gl_try_newref((PyObject *)loop) != NULL)
            list.item[list.len++] = loop;
    GL_UNLOCK(loops_mutex);
    return list;
}

GL_PRIVATE void
gl_loops_drop(gl_loop_list *list)
{
    for (uint32_t i = 0; i < list->len; i++)
        Py_DECREF(list->item[i]);
    PyMem_RawFree(list->item);
}
