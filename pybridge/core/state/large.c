/*
 * large.c: buffers for large receives.
 *
 * A stream that lately received much at once is received straight into a bytes
 * object, which is then cut to length and given to the protocol: that spares the copy
 * out of the arena, a fifth of the work of a 100 KiB message.
 *
 *     none --a receive of GL_LARGE_LEAST bytes--> filled before each turn
 *      ^                                              |
 *      +------- GL_LARGE_IDLE turns without use ------+
 *
 * Few buffers, of a moderate size: those of one turn should still be in the
 * processor's cache when they are sent on.
 */
#include "state/private.h"

#include <stdlib.h>

#define GL_LARGE_SIZE (128 * 1024)
#define GL_LARGE_LEAST (32 * 1024)
#define GL_LARGE_IDLE 4096u

GL_PRIVATE void
gl_large_drop(gl_loop *loop)
{
    for (int i = 0; i < GL_LARGE_MAX; i++) {
        if (loop->shared)
            loop->shared->large[i] = NULL;
        Py_CLEAR(loop->large[i]);
    }
    loop->large_wanted = false;
}

GL_PRIVATE void
gl_large_refill(gl_loop *loop)
{
    if (++loop->large_idle > GL_LARGE_IDLE) {
        gl_large_drop(loop);
        return;
    }
    for (int i = 0; i < GL_LARGE_MAX; i++) {
        if (loop->large[i])
            continue;
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, GL_LARGE_SIZE);
        if (bytes == NULL) {
            PyErr_Clear();
            return;
        }
        loop->large[i] = bytes;
        loop->shared->large[i] = (uint8_t *)PyBytes_AS_STRING(bytes);
    }
}

GL_PRIVATE_INLINE void
gl_large_note(gl_loop *loop, int64_t n)
{
    if (n < GL_LARGE_LEAST)
        return;
    loop->large_idle = 0;
    if (!loop->large_wanted) {
        loop->large_wanted = true;
        loop->shared->large_size = GL_LARGE_SIZE;
        /* glibc gives blocks of this size back to the kernel at each free, and faults
         * their pages in again, until it has seen a larger one freed. */
        void *volatile block = malloc(4 * 1024 * 1024); /* volatile: not optimised away */
        free(block);
    }
}

GL_PRIVATE PyObject *
gl_large_take(gl_loop *loop, const gl_completion *c)
{
    PyObject *bytes = loop->large[c->res - 1];
    loop->large[c->res - 1] = NULL;
    loop->shared->large[c->res - 1] = NULL;
    (void)_PyBytes_Resize(&bytes, (Py_ssize_t)c->arg); /* NULL in case of failure */
    return bytes;
}
