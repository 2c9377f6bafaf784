/*
 * receive_buffers.c: buffers for large receives.
 *
 * A stream whose last receive was large receives directly into a bytes object, which is then
 * truncated and passed to the protocol.  This saves the copy out of the arena, a fifth of the work
 * of a 100 KiB message.
 *
 * For a socket C receives just before it calls the protocol (gl_large_alloc, gl_large_truncate).
 * For pipes Go receives, into bytes objects that C lends to it, the lent buffers:
 *
 *     none --a receive of GL_LARGE_LEAST bytes--> filled before each turn
 *      ^                                              |
 *      +------- GL_LARGE_IDLE turns without use ------+
 *
 * The buffers have a moderate size.  After a receive that filled one they are larger: the writer of
 * a large pipe is woken by each read, and the two processes contend for the pipe's lock.
 */
#include "fds/fds.h"

#include <stdlib.h>

#define GL_LARGE_SIZE (128 * 1024) /* the size of a buffer in bytes */
#define GL_LARGE_WIDE (256 * 1024) /* after a receive that filled the smaller one: a large pipe */
#define GL_LARGE_LEAST (32 * 1024) /* the size of a receive that counts as large */
#define GL_LARGE_IDLE 4096u        /* turns without a large receive after which buffers are freed */

GL_PRIVATE void
gl_large_free(gl_loop *loop)
{
    for (int i = 0; i < GL_MAX_LARGE; i++) {
        if (loop->shared)
            loop->shared->large[i] = NULL;
        Py_CLEAR(loop->large[i]);
    }
    loop->large_wanted = false;
}

GL_PRIVATE void
gl_large_refill(gl_loop *loop)
{
    loop->large_idle++;
    if (loop->large_idle > GL_LARGE_IDLE) {
        gl_large_free(loop);
        return;
    }
    /* Go assumes this size for each of them. */
    Py_ssize_t size = (Py_ssize_t)loop->shared->large_size;
    for (int i = 0; i < GL_MAX_LARGE; i++) {
        if (loop->large[i] && PyBytes_GET_SIZE(loop->large[i]) == size)
            continue;
        loop->shared->large[i] = NULL;
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, size);
        Py_XSETREF(loop->large[i], bytes); /* lint: allow check-commit: exact bytes */
        if (loop->large[i] != NULL)
            loop->shared->large[i] = (uint8_t *)PyBytes_AS_STRING(loop->large[i]);
        else
            PyErr_Clear();
    }
}

GL_PRIVATE uint8_t *
gl_scratch_acquire(gl_loop *loop)
{
    uint8_t *scratch = loop->scratch;
    loop->scratch = NULL;
    if (scratch == NULL)
        scratch = PyMem_RawMalloc(GL_SCRATCH_SIZE);
    if (scratch == NULL)
        PyErr_NoMemory();
    return scratch;
}

GL_PRIVATE void
gl_scratch_release(gl_loop *loop, uint8_t *scratch)
{
    /* A sock_recv() that ran inside a callback may have left its own scratch buffer here. */
    PyMem_RawFree(loop->scratch);
    loop->scratch = scratch;
}

/* Chooses the size of the next large buffers from the size n of a receive. */
static inline void
set_large_size(gl_loop *loop, int64_t n)
{
    if (n < GL_LARGE_SIZE)
        loop->shared->large_size = GL_LARGE_SIZE;
    else
        loop->shared->large_size = GL_LARGE_WIDE;
}

GL_PRIVATE_INLINE void
gl_large_record_receive(gl_loop *loop, int64_t n)
{
    if (n < GL_LARGE_LEAST)
        return;
    loop->large_idle = 0;
    set_large_size(loop, n);
    if (!loop->large_wanted) {
        loop->large_wanted = true;
        /* glibc returns blocks of this size to the kernel at each free, and the next allocation
         * faults their pages in again, until a larger block was freed.  From then on glibc keeps up
         * to twice that size at the top of the heap.  This applies to the whole process: it keeps
         * at most 8 MB, as it would after the program itself had freed a block of 4 MB. */
        void *volatile block = malloc(4 * 1024 * 1024); /* volatile: not optimised away */
        free(block);
    }
}

GL_PRIVATE PyObject *
gl_large_detach(gl_loop *loop, const gl_completion *c)
{
    PyObject *bytes = loop->large[c->res - 1];
    loop->large[c->res - 1] = NULL;
    loop->shared->large[c->res - 1] = NULL;
    (void)_PyBytes_Resize(&bytes, (Py_ssize_t)c->arg); /* NULL in case of failure */
    return bytes;
}

GL_PRIVATE Py_ssize_t
gl_large_size(gl_loop *loop)
{
    uint64_t size = loop->shared->large_size;
    return size ? (Py_ssize_t)size : GL_LARGE_SIZE;
}

GL_PRIVATE PyObject *
gl_large_alloc(gl_loop *loop)
{
    return PyBytes_FromStringAndSize(NULL, gl_large_size(loop));
}

GL_PRIVATE void
gl_large_truncate(gl_loop *loop, PyObject **bytes, Py_ssize_t n)
{
    set_large_size(loop, n);
    if (n < PyBytes_GET_SIZE(*bytes))
        (void)_PyBytes_Resize(bytes, Py_MAX(n, 0)); /* NULL in case of failure */
}
