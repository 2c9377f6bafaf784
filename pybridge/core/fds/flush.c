/*
 * flush.c: what must leave before something ends it.
 *
 * asyncio's transports send within write().  Here small writes wait for the next turn, so
 * what may keep that turn from coming, or lets others look at the connection first, sends
 * them before it: a fork (of any thread), and the exit of the interpreter.  What ends a
 * process without a word (os._exit, execv, a fatal signal) can't be helped;
 * docs/compatibility.md says so.
 */
#include "fds/fds.h"

/* Transports, owned. */
typedef struct {
    gl_fd *item;
    uint32_t len, cap;
} transport_list;

/* Notes a transport that has something to send and was not yet registered: its connection_made
 * runs, or has just run.  Runs no Python. */
static int
note_unopened(gl_fd *f, visitproc Py_UNUSED(visit), void *arg)
{
    transport_list *list = arg;
    if (f->transport == NULL || G.reg_ops[f->kind]->unsent == NULL ||
        !G.reg_ops[f->kind]->unsent(f->transport))
        return 0;
    if (!gl_grow(&list->item, &list->cap, list->len, sizeof(*f), 16))
        return 0; /* it is sent when it is registered */
    if (gl_try_newref(f->transport) != NULL)
        list->item[list->len++] = *f;
    return 0;
}

/* Sends what a loop's transports have queued. */
static void
loop_flush(gl_loop *loop)
{
    GL_GUARD(loop);
    transport_list unopened = {NULL, 0, 0};
    if (loop->go == NULL)
        return;
    if (loop->dirty)
        gl_enter(loop)->flush(loop->reactor);
    (void)gl_fds_each(&loop->fds, note_unopened, NULL, &unopened);
    for (uint32_t i = 0; i < unopened.len; i++) {
        G.reg_ops[unopened.item[i].kind]->flush(unopened.item[i].transport);
        Py_DECREF(unopened.item[i].transport);
    }
    PyMem_RawFree(unopened.item);
}

static void
loops_flush(void)
{
    if (gl_library_epoch() == 0)
        return;
    gl_loop_list all = gl_loops_all(false);
    for (uint32_t i = 0; i < all.len; i++)
        loop_flush(all.item[i]);
    gl_loops_drop(&all);
}

static PyObject *
at_exit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    loops_flush();
    gl_door_shut();
    Py_RETURN_NONE;
}

static PyObject *
before_fork(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    loops_flush();
    gl_library_before_fork();
    Py_RETURN_NONE;
}

#ifdef GL_FREE_THREADED
static PyObject *
in_child(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    memset(&G.loops_mutex, 0, sizeof G.loops_mutex);
    for (gl_loop *loop = G.first_loop; loop != NULL; loop = loop->next_loop)
        gl_lock_forget_others(loop);
    Py_RETURN_NONE;
}
#endif

static PyMethodDef flush_functions[] = {
#ifdef GL_FREE_THREADED
    {"_in_child", GL_NOARGS(in_child), PyDoc_STR("For os.register_at_fork(after_in_child=...).")},
#endif
    {"_at_exit", GL_NOARGS(at_exit),
     PyDoc_STR("Sends what the transports of all loops have queued, and shuts state/door.c.")},
    {"_before_fork", GL_NOARGS(before_fork), PyDoc_STR("For os.register_at_fork(before=...).")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_flush_init(PyObject *module)
{
    return PyModule_AddFunctions(module, flush_functions);
}
