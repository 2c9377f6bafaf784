/*
 * loops.c: the loops of this process, and what must leave before something ends them.
 *
 * asyncio's transports send within write().  Here small writes wait for the next turn, so
 * what may keep that turn from coming, or lets others look at the connection first, sends
 * them before it: a fork (of any thread), and the exit of the interpreter.  What ends a
 * process without a word (os._exit, execv, a fatal signal) can't be helped;
 * docs/compatibility.md says so.
 *
 * Guarded by the GIL.
 */
#include "stream.h"

static gl_loop *first_loop;

static void
gl_loops_add(gl_loop *loop)
{
    loop->next_loop = first_loop;
    loop->prev_loop = NULL;
    if (first_loop != NULL)
        first_loop->prev_loop = loop;
    first_loop = loop;
}

static void
gl_loops_remove(gl_loop *loop)
{
    if (loop->next_loop != NULL)
        loop->next_loop->prev_loop = loop->prev_loop;
    if (loop->prev_loop != NULL)
        loop->prev_loop->next_loop = loop->next_loop;
    else if (first_loop == loop)
        first_loop = loop->next_loop;
    loop->next_loop = loop->prev_loop = NULL;
}

/* Streams, owned. */
typedef struct {
    gl_stream **item;
    size_t len, cap;
} stream_list;

/* Notes a stream that has something to send and was not yet registered: its connection_made
 * runs, or has just run.  Runs no Python. */
static int
note_unopened(gl_fd *f, visitproc Py_UNUSED(visit), void *arg)
{
    PyObject *transport = f->transport;
    stream_list *list = arg;
    if (transport == NULL || Py_REFCNT(transport) == 0 ||
        PyObject_TypeCheck(transport, gl_datagram_type))
        return 0;
    gl_stream *s = (gl_stream *)transport;
    if (s->open || s->queued == 0)
        return 0;
    if (list->len == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 16;
        gl_stream **p = PyMem_Realloc(list->item, cap * sizeof(*p));
        if (p == NULL)
            return 0; /* it is sent when it is registered */
        list->item = p;
        list->cap = cap;
    }
    list->item[list->len++] = (gl_stream *)Py_NewRef(transport);
    return 0;
}

/* Sends what the loops' transports have queued, but for loops that are in Go and do so
 * themselves. */
static void
gl_loops_flush(void)
{
    stream_list unopened = {NULL, 0, 0};
    if (first_loop == NULL || gl_library_epoch() == 0)
        return;
    for (gl_loop *loop = first_loop; loop != NULL; loop = loop->next_loop) {
        if (loop->go == NULL || loop->in_turn || gl_loop_is_foreign(loop))
            continue;
        if (loop->dirty)
            loop->go->flush(loop->reactor);
        (void)fds_each(&loop->fds, note_unopened, NULL, &unopened);
    }
    for (size_t i = 0; i < unopened.len; i++) {
        stream_flush_visible(unopened.item[i]);
        Py_DECREF(unopened.item[i]);
    }
    PyMem_Free(unopened.item);
}

/* _flush_loops(): for atexit. */
static PyObject *
core_flush_loops(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    gl_loops_flush();
    Py_RETURN_NONE;
}
