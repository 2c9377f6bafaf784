/*
 * loop_type.c: the Loop type, native half of goloop.Loop.
 *
 * Code that runs for each callback is C, here and in the lower rooms.  Code that runs for each
 * connection or loop is Python (goloop/_internal/loop/loop.py): a class that inherits from this
 * type and from asyncio's BaseEventLoop.
 *
 * States: made (a reactor is open) -> running <-> stopped -> closed (without reactor and queues).
 * In a forked child a loop of the parent is foreign: methods that would use its reactor raise.  It
 * can be closed: this frees its memory and leaves the reactor alone.
 * Any thread may call call_soon_threadsafe, _wake, in guest mode _poll, and the methods that only
 * read (is_running, time, _check_closed, _describe, metrics).  All other methods must be called in
 * the loop's own thread.
 */
#include "loop/private.h"

/* Completions that a turn can return. */
#define GL_CMP_CAP 4096u
/* Bytes that a turn can receive for streams.  They should still be in the processor's cache when
 * they are delivered: 512 KiB cost a third more for each message of 100 KiB. */
#define GL_ARENA_SIZE (128u * 1024u)

/* ---- state ---------------------------------------------------------------------- */

/* loop.is_running(): True while a thread runs the loop.  Needs no lock. */
static PyObject *
loop_is_running(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(GL_READ(self->thread_id) != 0);
}

/* _check_closed(): returns None, or raises RuntimeError if the loop is closed or foreign, or if its
 * __init__() was not called (detected once the library is open). */
static PyObject *
loop_check_closed(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (GL_READ(self->closed) || gl_loop_is_foreign(self)) {
        gl_loop_check_usable(self);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* _wake(): ends the loop's poll, if it waits in one; called by any thread.  Does nothing for a
 * closed or foreign loop.  Returns None. */
static PyObject *
loop__wake(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
#ifdef GL_FREE_THREADED
    gl_inbox_wake(self);
#else
    gl_wake(self);
#endif
    Py_RETURN_NONE;
}

/* ---- the block that C and Go share -------------------------------------------------- */

/* Frees the shared block and its arrays, after the reactor was closed. */
static void
shared_free(gl_shared *sh)
{
    PyMem_RawFree(sh->sub);
    PyMem_RawFree(sh->cmp);
    PyMem_RawFree(sh->arena);
    PyMem_RawFree(sh);
}

/* Allocates the shared block of a new loop and sets its flags from the environment; NULL, without
 * an exception, if out of memory. */
static gl_shared *
shared_new(void)
{
    gl_shared *sh = PyMem_RawCalloc(1, sizeof(*sh));
    if (sh == NULL)
        return NULL;
    sh->cmp = PyMem_RawMalloc(GL_CMP_CAP * sizeof(gl_completion));
    sh->arena = PyMem_RawMalloc(GL_ARENA_SIZE + GL_ARENA_SLACK);
    if (sh->cmp == NULL || sh->arena == NULL) {
        shared_free(sh);
        return NULL;
    }
    gl_watchdog_init_shared(sh);
    sh->cmp_cap = GL_CMP_CAP;
    sh->arena_cap = GL_ARENA_SIZE;
    sh->next_deadline = GL_DEADLINE_NONE;
    sh->wake_fd = -1;
    sh->fixed_eager_limit = -1;
    const char *limit = getenv("GOLOOP_EAGER_SENDS");
    if (limit != NULL && limit[0] >= '0' && limit[0] <= '9')
        sh->fixed_eager_limit = Py_MIN(atoi(limit), INT8_MAX);
    const char *words = getenv("GOLOOP_WATCHDOG_STDERR");
    if (words != NULL && strcmp(words, "json") == 0)
        sh->flags |= GL_JSON;
    if (gl_clock_is_replaced())
        sh->flags |= GL_CLOCK_IS_LIBC;
    return sh;
}

/* Closes the loop: drops queues, timers, watches and registrations, closes sockets that were
 * accepted and not delivered, closes the reactor (unless the loop is foreign), and frees the shared
 * block.  Does nothing for a loop that is closed, that has no reactor yet, or that is just being
 * closed by an outer call.  Runs Python.  lint: allow check-commit: `releasing` keeps the shared
 * block until the end */
static void
loop_release(gl_loop *self)
{
    gl_shared *sh = self->shared;
    /* Closing a descriptor releases the GIL, and destructors run: both may call this again. */
    if (sh == NULL || self->releasing)
        return;
    self->releasing = 1;
#ifdef GL_FREE_THREADED
    gl_inbox_close(self);
#endif
    gl_shared_lock(self); /* never unlocked: the monitor uses the reactor until it is closed */
#ifdef GL_FREE_THREADED
    if (self->tasks.next == &self->tasks) /* a loop with tasks stays listed until it is freed */
#endif
        gl_loops_remove(self);
    bool foreign = gl_loop_is_foreign(self);
    for (uint32_t i = 0; i < self->regs_cap; i++) {
        PyObject *owner = self->regs[i].owner;
        if (owner == NULL)
            continue;
        Py_INCREF(owner);
        G.reg_ops[self->regs[i].kind]->unregister_on_loop_close(owner);
        Py_DECREF(owner);
    }
    dispatch_drop(self);
    gl_large_free(self);
    GL_WRITE(self->closed, 1); /* the garbage collector may be first, before close() */
    GL_WRITE(self->shared, NULL);
    gl_ready_close(&self->ready);
    gl_transports_drop_unscheduled_ends(self);
    gl_timers_clear(&self->timers);
    gl_registry_clear(self, gl_watch_free);
    Py_CLEAR(self->current_handle);
    const gl_table *go = self->go;
    GL_WRITE(self->go, NULL);
    if (go && !foreign)
        go->reactor_close(self->reactor);
    shared_free(sh);
    PyMem_RawFree(self->scratch);
    self->scratch = NULL;
    self->releasing = 0;
}

/* _close_core(): closes the native half of the loop by loop_release(), and returns None.  Only
 * frees memory if the loop is foreign: the parent's reactor is left alone.  Does nothing if it is
 * closed already.  NULL with RuntimeError while the loop runs. */
static PyObject *
loop__close_core(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    if (self->running) {
        PyErr_SetString(PyExc_RuntimeError, "Cannot close a running event loop");
        return NULL;
    }
    GL_WRITE(self->closed, 1);
    loop_release(self);
    Py_RETURN_NONE;
}

/* _flush_deferred_sends(): sends the writes that wait for the next turn, and returns None; a failed
 * send is reported by the next turn.  Python code calls this before it sends on a socket, connects
 * one, or signals a child process, so that the written data come first. */
static PyObject *
loop__flush_deferred_sends(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    gl_flush_deferred_sends(self);
    Py_RETURN_NONE;
}

/* _describe(): returns facts about the reactor and the Go runtime, as JSON: "{}" for a closed or
 * foreign loop, "" if Go fails or if they are longer than 2 KiB. */
static PyObject *
loop__describe(gl_loop *self, PyObject *Py_UNUSED(ignored))
{
    char text[2048] = "{}";
    if (self->go && !gl_loop_is_foreign(self)) {
        int32_t n = self->go->reactor_facts(self->reactor, text, (int32_t)sizeof text - 1);
        if (n < 0 || n >= (int32_t)sizeof text)
            n = 0;
        text[n] = 0;
    }
    return PyUnicode_FromString(text);
}

/* ---- construction and destruction ----------------------------------------------- */

/* Implements tp_new: returns a loop without a reactor, which Loop.__init__() opens; NULL with
 * MemoryError. */
static PyObject *
loop_new(PyTypeObject *type, PyObject *args, PyObject *kwds)
{
    PyObject *self = PyType_GenericNew(type, args, kwds);
    if (self == NULL)
        return NULL;
    gl_enable_try(self);
#ifdef GL_FREE_THREADED
    gl_task_node *tasks = &((gl_loop *)self)->tasks;
    tasks->next = tasks;
    tasks->prev = tasks;
    if (gl_lock_init((gl_loop *)self) < 0)
        Py_CLEAR(self);
#endif
    return self;
}

/* Loop.__init__(): opens the library if this process has none, and a reactor.  -1 with ImportError,
 * OSError, MemoryError, TypeError for arguments, or RuntimeError for a second call, for a closed
 * loop and for a thread with too small a stack; the loop is then unchanged. */
static int
loop_init(gl_loop *self, PyObject *args, PyObject *kwds)
{
    GL_GUARD(self);
    if (PyTuple_GET_SIZE(args) != 0 || (kwds && PyDict_GET_SIZE(kwds) != 0)) {
        PyErr_SetString(PyExc_TypeError, "Loop() takes no arguments");
        return -1;
    }
    const char *message = "the event loop is initialised already";
    if (self->shared == NULL && !self->closed)
        message = gl_library_stack_error();
    if (message != NULL) {
        PyErr_SetString(PyExc_RuntimeError, message);
        return -1;
    }
    const gl_table *go = gl_library_open(&message);
    if (go == NULL) {
        PyErr_SetString(PyExc_ImportError, message ? message : "goloop: no Go library");
        return -1;
    }
    gl_shared *sh = shared_new();
    if (sh == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    sh->popped = &self->ready.head;
    sh->handed = &self->cmp_pos;
    int32_t r = gl_ready_init(&self->ready);
    if (r == 0) {
        r = go->reactor_new(sh);
        if (r < 0)
            gl_set_oserror(-r);
    }
    if (r < 0) {
        shared_free(sh);
        gl_ready_close(&self->ready);
        return -1;
    }
    self->go = go;
    self->shared = sh;
    self->reactor = r;
    self->epoch = gl_library_epoch();
    gl_loops_add(self);
    return 0;
}

/* Implements tp_traverse: visits the queues, the timers and the watches too. */
static int
loop_traverse(gl_loop *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->current_handle);
    Py_VISIT(self->task_factory);
    Py_VISIT(self->unscheduled_ends);
    int r = gl_ready_traverse(&self->ready, visit, arg);
    if (r == 0)
        r = gl_timers_traverse(&self->timers, visit, arg);
    if (r == 0)
        r = gl_registry_traverse(self, gl_watch_traverse, visit, arg);
#ifdef GL_FREE_THREADED
    if (r == 0)
        r = gl_inbox_traverse(self, visit, arg);
#endif
    return r;
}

/* Implements tp_clear: closes a loop that does not run, and drops the task factory.  Returns 0. */
static int
loop_clear(gl_loop *self)
{
    if (!self->running) /* the queues of a running loop are in use */
        loop_release(self);
    Py_CLEAR(self->task_factory);
    return 0;
}

/* Implements tp_dealloc: closes the loop. */
static void
loop_dealloc(gl_loop *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (self->weakrefs)
        PyObject_ClearWeakRefs((PyObject *)self);
    loop_release(self);
    gl_loops_remove(self);
    Py_CLEAR(self->task_factory);
    Py_CLEAR(self->current_handle);
    gl_ready_close(&self->ready);
#ifdef GL_FREE_THREADED
    Py_XDECREF(self->lock);
#endif
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* ---- the type -------------------------------------------------------------------- */

/* Getter of a one-byte flag at `offset` in the loop, for BOOL_GETSET. */
static PyObject *
get_bool(gl_loop *self, void *offset)
{
    return PyBool_FromLong(GL_READ(*((char *)self + (intptr_t)offset)));
}

/* Setter of a one-byte flag at `offset` in the loop: the truth of any object; false for a deletion.
 * -1 with the exception of the object's __bool__(). */
static int
set_bool(gl_loop *self, PyObject *value, void *offset)
{
    int truth = 0;
    if (value != NULL)
        truth = PyObject_IsTrue(value);
    if (truth < 0)
        return -1;
    GL_WRITE(*((char *)self + (intptr_t)offset), (char)truth);
    return 0;
}

/* Implements tp_setattro; records that a program replaces a method in the instance, or deletes the
 * replacement. */
static int
loop_setattro(PyObject *self, PyObject *name, PyObject *value)
{
    GL_GUARD(self);
    gl_note_replaced((gl_loop *)self, name, value);
    return PyObject_GenericSetAttr(self, name, value);
}

/* An attribute for a flag of the loop, a field of type char. */
#define BOOL_GETSET(name, field)                                                                   \
    {name, (getter)get_bool, (setter)set_bool, NULL, (void *)offsetof(gl_loop, field)}

static PyGetSetDef loop_getset[] = {
    BOOL_GETSET("_closed", closed), BOOL_GETSET("_stopping", stopping),
    BOOL_GETSET("_debug", debug),   BOOL_GETSET("_hosted", guest_mode),
    {NULL, NULL, NULL, NULL, NULL},
};

GL_TAKES_NONE(is_running_method, loop_is_running, "is_running")
GL_TAKES_NONE(create_future_method, gl_loop_create_future, "create_future")

/* The methods of this file, and of the room tasks/.  gl_loop_init_type() adds the tables of other
 * files. */
static PyMethodDef loop_methods[] = {
    {"is_running", GL_FASTKW(is_running_method),
     PyDoc_STR("is_running($self)\n--\n\nReturn True while the loop runs.")},
    {"create_task", GL_FASTKW(gl_loop_create_task),
     GL_CREATE_TASK_TAKES_KWARGS /* the arguments are asyncio's */
         ? "create_task($self, coro, **kwargs)\n--\n\nSchedule a coroutine; return a Task."
         : "create_task($self, coro, *, name=None, context=None)\n--\n\n"
           "Schedule a coroutine; return a Task."},
    {"create_future", GL_FASTKW(create_future_method),
     PyDoc_STR("create_future($self)\n--\n\nReturn a Future attached to the loop.")},
    {"_check_closed", GL_NOARGS(loop_check_closed), NULL},
    {"_wake", GL_NOARGS(loop__wake), NULL},
    {"_close_core", GL_NOARGS(loop__close_core), NULL},
    {"_describe", GL_NOARGS(loop__describe), NULL},
    {"_flush_deferred_sends", GL_NOARGS(loop__flush_deferred_sends), NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef loop_members[] = {
    {"_iterations", T_ULONGLONG, offsetof(gl_loop, counts.iterations), READONLY, NULL},
    {"_thread", T_ULONG, offsetof(gl_loop, thread_id), 0,
     PyDoc_STR("`_thread_id` of asyncio, or 0: the threading.get_ident() of the running thread.")},
    {"_running_thread", T_ULONG, offsetof(gl_loop, running), READONLY,
     PyDoc_STR("The _thread_ident() of the thread that runs the loop, or 0.")},
    {"_task_factory", T_OBJECT, offsetof(gl_loop, task_factory), 0,
     PyDoc_STR("The argument of set_task_factory, or None.")},
    {"_current_handle", T_OBJECT, offsetof(gl_loop, current_handle), 0,
     PyDoc_STR("The handle that runs now (debug mode), or None.")},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(gl_loop, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot loop_slots[] = {
    {Py_tp_doc, PyDoc_STR("The native half of goloop.Loop.")},
    {Py_tp_init, loop_init},
    {Py_tp_new, loop_new},
    {Py_tp_traverse, loop_traverse},
    {Py_tp_clear, loop_clear},
    {Py_tp_dealloc, loop_dealloc},
    {Py_tp_methods, loop_methods},
    {Py_tp_setattro, loop_setattro},
#ifdef GL_FREE_THREADED
    {Py_tp_hash, gl_loop_hash},
#endif
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
    PyMethodDef *const tables[] = {call_soon_methods, turn_methods,       gl_watch_methods,
                                   gl_sockop_methods, gl_metrics_methods, gl_watchdog_methods};
    if (gl_type_make(&G.loop_type, module, &loop_spec, NULL) < 0)
        return -1;
    for (size_t i = 0; i < Py_ARRAY_LENGTH(tables); i++)
        if (gl_type_add_methods(G.loop_type, tables[i]) < 0)
            return -1;
    if (gl_rule_set_class(GL_RULE_LOOP, (PyObject *)G.loop_type) < 0)
        return -1;
#ifdef GL_FREE_THREADED
    /* A type with its own tp_hash does not inherit tp_richcompare. */
    G.loop_type->tp_richcompare = PyBaseObject_Type.tp_richcompare;
    /* Methods that read or write one word, use the inbox, or take the lock themselves. */
    static const char *const free_names[] = {
        "call_soon_threadsafe",
        "is_running",
        "time",
        "_closed",
        "_stopping",
        "_debug",
        "_thread",
        "_running_thread",
        "call_at",
        "call_soon",
        "call_later",
        "_wake",
        "_check_closed",
        NULL,
    };
    return gl_guard_type(G.loop_type, GL_OWNER_LOOP_ITSELF, free_names, GL_GUARD_DEALLOC);
#else
    return 0;
#endif
}
