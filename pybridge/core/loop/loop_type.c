/*
 * loop.c: the Loop type, native half of goloop.Loop.
 *
 * What runs per callback is here and in the files it leans on; what runs per
 * connection or per loop is Python (goloop/loop.py), which inherits from this type
 * and from asyncio's BaseEventLoop.
 *
 * States: made (a reactor is open) -> running <-> stopped -> closed (no reactor, no
 * queues).  In a forked child a loop of the parent is foreign: every entry raises.
 * All methods want the loop's own thread but for call_soon_threadsafe and _wake.
 */
#include "loop/private.h"

#define GL_CMP_CAP 4096u
/* What one turn receives should still be in the processor's cache when it is handed
 * out: 512 KiB cost a third more per message of 100 KiB. */
#define GL_ARENA_SIZE (128u * 1024u)

/* ---- state ---------------------------------------------------------------------- */

static PyObject *
loop_stop(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    self->stopping = 1;
    Py_RETURN_NONE;
}

static PyObject *
loop_is_closed(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(self->closed);
}

static PyObject *
loop_is_running(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(self->thread_id != 0);
}

static PyObject *
loop_get_debug(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(self->debug);
}

static PyObject *
loop_check_closed(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (self->closed || gl_loop_is_foreign(self)) {
        gl_loop_check_usable(self);
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
loop__wake(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    gl_wake(self);
    Py_RETURN_NONE;
}

/* Drops queues, timers, registrations and the reactor.  Idempotent.
 * lint: allow check-commit: `releasing` keeps the shared block until the end */
static void
loop_release(gl_loop *self)
{
    gl_shared *sh = self->shared;
    /* Closing a descriptor gives up the GIL, and destructors run: others may come here. */
    if (sh == NULL || self->releasing)
        return;
    self->releasing = 1;
    gl_loops_remove(self);
    bool foreign = gl_loop_is_foreign(self);
    for (uint32_t i = 0; i < self->regs_cap; i++) {
        PyObject *owner = self->regs[i].owner;
        if (owner == NULL)
            continue;
        Py_INCREF(owner);
        G.reg_ops[self->regs[i].kind]->orphan(owner);
        Py_DECREF(owner);
    }
    dispatch_drop(self);
    gl_large_drop(self);
    self->closed = 1; /* where the collector has come before close() */
    self->shared = NULL;
    gl_ready_close(&self->ready);
    gl_timers_clear(&self->timers);
    gl_registry_clear(self);
    Py_CLEAR(self->resolving);
    Py_CLEAR(self->current_handle);
    const gl_table *go = self->go;
    self->go = NULL;
    if (go && !foreign)
        go->reactor_close(self->reactor);
    PyMem_RawFree(sh->sub);
    PyMem_RawFree(sh->cmp);
    PyMem_RawFree(sh->arena);
    PyMem_RawFree(self->late);
    self->late = NULL;
    self->late_len = self->late_cap = 0;
    PyMem_RawFree(self->scratch);
    self->scratch = NULL;
    PyMem_RawFree(sh);
    self->releasing = 0;
}

static PyObject *
loop__close_core(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (self->running) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot close a running event loop");
        return NULL;
    }
    self->closed = 1;
    loop_release(self);
    Py_RETURN_NONE;
}

static PyObject *
loop__diagnostics(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    gl_shared *sh = self->shared;
    if (sh == NULL)
        return PyDict_New();
    char text[2048] = "{}";
    if (self->go && !gl_loop_is_foreign(self)) {
        int32_t n = self->go->describe(self->reactor, text, (int32_t)sizeof text - 1);
        if (n < 0 || n >= (int32_t)sizeof text)
            n = 0;
        text[n] = 0;
    }
    return Py_BuildValue(
        "{sKsKsKsKsKsKsKsksksIss}", "iterations", (unsigned long long)self->iterations, "turns",
        (unsigned long long)sh->turns, "polls", (unsigned long long)sh->polls, "recvs",
        (unsigned long long)sh->recvs, "sends", (unsigned long long)sh->sends, "accepts",
        (unsigned long long)sh->accepts, "wakeups", (unsigned long long)sh->wakeups, "ready",
        (unsigned long)self->ready.count, "ready_capacity", (unsigned long)self->ready.capacity,
        "timers", self->timers.armed, "runtime", text);
}

/* ---- construction and destruction ----------------------------------------------- */

static int
loop_init(gl_loop *self, PyObject *args, PyObject *kwds)
{
    if (PyTuple_GET_SIZE(args) != 0 || (kwds && PyDict_GET_SIZE(kwds) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Loop() takes no arguments");
        return -1;
    }
    if (self->shared || self->closed) {
        PyErr_SetString(PyExc_RuntimeError, "the event loop is initialised already");
        return -1;
    }
    const char *message = gl_library_stack_short();
    if (message != NULL) {
        PyErr_SetString(PyExc_RuntimeError, message);
        return -1;
    }
    const gl_table *go = gl_library(&message);
    if (go == NULL) {
        PyErr_SetString(PyExc_ImportError, message ? message : "goloop: no Go library");
        return -1;
    }
    gl_shared *sh = PyMem_RawCalloc(1, sizeof(*sh));
    if (sh == NULL)
        goto nomem;
    sh->cmp = PyMem_RawMalloc(GL_CMP_CAP * sizeof(gl_completion));
    sh->arena = PyMem_RawMalloc(GL_ARENA_SIZE + GL_ARENA_SLACK);
    sh->cmp_cap = GL_CMP_CAP;
    sh->arena_cap = GL_ARENA_SIZE;
    sh->next_deadline = GL_DEADLINE_NONE;
    sh->wake_fd = -1;
    const char *ring = getenv("GOLOOP_IO_URING");
    if (ring != NULL && strcmp(ring, "0") == 0)
        sh->flags |= GL_NO_RING;
    if (sh->cmp == NULL || sh->arena == NULL)
        goto nomem;
    if (gl_ready_init(&self->ready) < 0)
        goto fail;
    int32_t r = go->reactor_new(sh);
    if (r < 0) {
        gl_set_oserror(-r);
        goto fail;
    }
    self->go = go;
    self->shared = sh;
    self->reactor = r;
    self->epoch = gl_library_epoch();
    gl_loops_add(self);
    return 0;
nomem:
    PyErr_NoMemory();
fail:
    if (sh) {
        PyMem_RawFree(sh->sub);
        PyMem_RawFree(sh->cmp);
        PyMem_RawFree(sh->arena);
        PyMem_RawFree(sh);
    }
    gl_ready_close(&self->ready);
    return -1;
}

static int
loop_traverse(gl_loop *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    int r = gl_ready_traverse(&self->ready, visit, arg);
    if (r == 0)
        r = gl_timers_traverse(&self->timers, visit, arg);
    if (r == 0)
        r = gl_registry_traverse(self, visit, arg);
    if (r)
        return r;
    Py_VISIT(self->resolving);
    Py_VISIT(self->current_handle);
    Py_VISIT(self->task_factory);
    return 0;
}

static int
loop_clear(gl_loop *self)
{
    if (!self->running) /* never under a running loop's feet */
        loop_release(self);
    Py_CLEAR(self->task_factory);
    return 0;
}

static void
loop_dealloc(gl_loop *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)self);
    loop_release(self);
    Py_CLEAR(self->task_factory);
    gl_ready_close(&self->ready);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* ---- the type -------------------------------------------------------------------- */

static PyObject *
get_bool(gl_loop *self, void *offset)
{
    return PyBool_FromLong(*((char *)self + (intptr_t)offset));
}

static int
set_bool(gl_loop *self, PyObject *value, void *offset)
{
    int truth = value ? PyObject_IsTrue(value) : 0;
    if (truth < 0)
        return -1;
    *((char *)self + (intptr_t)offset) = (char)truth;
    return 0;
}

static PyObject *
get_thread_id(gl_loop *self, void *Py_UNUSED(closure))
{
    if (self->thread_id == 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLong(self->thread_id);
}

static int
set_thread_id(gl_loop *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (value == NULL || value == Py_None) {
        self->thread_id = 0;
        return 0;
    }
    unsigned long id = PyLong_AsUnsignedLong(value);
    if (id == (unsigned long)-1 && PyErr_Occurred())
        return -1;
    self->thread_id = id;
    return 0;
}

static PyObject *
get_current_handle(gl_loop *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->current_handle ? self->current_handle : Py_None);
}

static int
set_current_handle(gl_loop *self, PyObject *value, void *Py_UNUSED(closure))
{
    Py_XSETREF(self->current_handle,
               value == NULL || value == Py_None ? NULL : Py_NewRef(value));
    return 0;
}

static PyObject *
get_task_factory(gl_loop *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(self->task_factory ? self->task_factory : Py_None);
}

static int
set_task_factory(gl_loop *self, PyObject *value, void *Py_UNUSED(closure))
{
    Py_XSETREF(self->task_factory, Py_XNewRef(value));
    return 0;
}

/* Notes when somebody gives the instance another call_soon: tasks then call it. */
static int
loop_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    if (name == G.s_call_soon ||
        (PyUnicode_Check(name) && PyUnicode_CompareWithASCIIString(name, "call_soon") == 0))
        ((gl_loop *)self)->replaced = value != NULL;
    return PyObject_GenericSetAttr(self, name, value);
}

#define BOOL_GETSET(name, field)                                                              \
    {name, (getter)get_bool, (setter)set_bool, NULL, (void *)offsetof(gl_loop, field)}

static PyGetSetDef loop_getset[] = {
    BOOL_GETSET("_closed", closed),
    BOOL_GETSET("_stopping", stopping),
    BOOL_GETSET("_debug", debug),
    {"_task_factory", (getter)get_task_factory, (setter)set_task_factory,
     PyDoc_STR("What set_task_factory was given, or None."), NULL},
    {"_thread_id", (getter)get_thread_id, (setter)set_thread_id,
     PyDoc_STR("Identity of the thread that runs the loop, or None."), NULL},
    {"_current_handle", (getter)get_current_handle, (setter)set_current_handle,
     PyDoc_STR("The handle that runs now (debug mode), or None."), NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define FASTKW(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL | METH_KEYWORDS
#define FAST(f) (PyCFunction)(void (*)(void))(f), METH_FASTCALL
#define NOARGS(f) (PyCFunction)(f), METH_NOARGS
#define ONEARG(f) (PyCFunction)(f), METH_O

static PyMethodDef loop_methods[] = {
    {"call_soon", FASTKW(loop_call_soon),
     PyDoc_STR("call_soon($self, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) in the next iteration; return a Handle.")},
    {"call_soon_threadsafe", FASTKW(loop_call_soon_threadsafe),
     PyDoc_STR("call_soon_threadsafe($self, callback, *args, context=None)\n--\n\n"
               "Like call_soon(), from any thread.")},
    {"call_later", FASTKW(loop_call_later),
     PyDoc_STR("call_later($self, delay, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) after delay seconds; return a TimerHandle.")},
    {"call_at", FASTKW(loop_call_at),
     PyDoc_STR("call_at($self, when, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) at loop time `when` (seconds); return a TimerHandle.")},
    {"time", NOARGS(loop_time), PyDoc_STR("Return the loop's clock in seconds (monotonic).")},
    {"stop", NOARGS(loop_stop), PyDoc_STR("Stop after the current iteration.")},
    {"is_closed", NOARGS(loop_is_closed), PyDoc_STR("Return True once the loop is closed.")},
    {"is_running", NOARGS(loop_is_running), PyDoc_STR("Return True while the loop runs.")},
    {"get_debug", NOARGS(loop_get_debug), PyDoc_STR("Return True in debug mode.")},
    {"create_task", FASTKW(gl_loop_create_task),
     PyDoc_STR("create_task($self, coro, **kwargs)\n--\n\n"
               "Schedule a coroutine; return a Task.  Arguments as asyncio's.")},
    {"create_future", NOARGS(gl_loop_create_future),
     PyDoc_STR("Return a Future attached to the loop.")},
    {"_check_closed", NOARGS(loop_check_closed), NULL},
    {"_timer_handle_cancelled", ONEARG(loop_timer_handle_cancelled), NULL},
    {"add_reader", FASTKW(gl_loop_add_reader),
     PyDoc_STR("add_reader($self, fd, callback, *args)\n--\n\n"
               "Call callback(*args) whenever fd is readable.")},
    {"add_writer", FASTKW(gl_loop_add_writer),
     PyDoc_STR("add_writer($self, fd, callback, *args)\n--\n\n"
               "Call callback(*args) whenever fd is writable.")},
    {"remove_reader", FASTKW(gl_loop_remove_reader),
     PyDoc_STR("remove_reader($self, fd)\n--\n\n"
               "Stop watching fd for reading; return True if it was watched.")},
    {"remove_writer", FASTKW(gl_loop_remove_writer),
     PyDoc_STR("remove_writer($self, fd)\n--\n\n"
               "Stop watching fd for writing; return True if it was watched.")},
    {"_add_reader", FAST(gl_loop__add_reader), NULL},
    {"_add_writer", FAST(gl_loop__add_writer), NULL},
    {"_remove_reader", ONEARG(gl_loop__remove_reader), NULL},
    {"_remove_writer", ONEARG(gl_loop__remove_writer), NULL},
    {"_ensure_fd_no_transport", ONEARG(gl_loop_ensure_fd_no_transport), NULL},
    {"_wait_readable", ONEARG(gl_loop_wait_readable), NULL},
    {"_wait_writable", ONEARG(gl_loop_wait_writable), NULL},
    {"_forget_wait", FAST(gl_loop_forget_wait), NULL},
    {"sock_recv", FASTKW(gl_loop_sock_recv),
     PyDoc_STR("sock_recv($self, sock, n)\n--\n\n"
               "Receive at most n bytes from a non-blocking socket; a coroutine.")},
    {"sock_recv_into", FASTKW(gl_loop_sock_recv_into),
     PyDoc_STR("sock_recv_into($self, sock, buf)\n--\n\n"
               "Receive into a writable buffer; a coroutine that gives the byte count.")},
    {"sock_sendall", FASTKW(gl_loop_sock_sendall),
     PyDoc_STR("sock_sendall($self, sock, data)\n--\n\n"
               "Send all bytes of data on a non-blocking socket; a coroutine.")},
    {"_resolve", FAST(gl_loop_resolve), NULL},
    {"_run", NOARGS(loop__run), NULL},
    {"_wake", NOARGS(loop__wake), NULL},
    {"_close_core", NOARGS(loop__close_core), NULL},
    {"_diagnostics", NOARGS(loop__diagnostics), NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef loop_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_loop, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot loop_slots[] = {
    {Py_tp_doc, PyDoc_STR("The native half of goloop.Loop.")},
    {Py_tp_init, loop_init},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, loop_traverse},
    {Py_tp_clear, loop_clear},
    {Py_tp_dealloc, loop_dealloc},
    {Py_tp_methods, loop_methods},
    {Py_tp_setattro, loop_setattro},
    {Py_tp_getset, loop_getset},
    {Py_tp_members, loop_members},
    {0, NULL},
};

static PyType_Spec loop_spec = {
    .name = "goloop._core.Loop",
    .basicsize = sizeof(gl_loop),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = loop_slots,
};

GL_PRIVATE int
gl_loop_init_type(PyObject *module)
{
    G.loop_type = (PyTypeObject *)PyType_FromSpec(&loop_spec);
    return G.loop_type ? PyModule_AddType(module, G.loop_type) : -1;
}
