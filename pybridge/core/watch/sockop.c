/*
 * sockop.c: sock_recv, sock_recv_into and sock_sendall as native coroutines.
 *
 *     created --first send--> try the system call --done--> StopIteration(value)
 *                                  |        ^
 *                  EAGAIN, or much sent     | the fd is ready
 *                                  v        |
 *                            waiting for a Future
 *
 *     throw() or close() while waiting: the wait is cancelled, the exception is raised.
 *
 * The bytes are received (sent) when the task runs again, not when the fd turns
 * ready, so a cancelled receive loses nothing (sockop_calls.c).
 *
 * The system calls use the fd only for a plain socket.socket, an ordinary size, and outside debug
 * mode.  In other cases the coroutines of goloop/_internal/net/sockets.py run, which call the
 * methods of the object, as asyncio does.  The fd is read from the socket before each call; after a
 * close() during the wait the call fails with EBADF.  recv_into acquires the buffer for each call
 * again, so a bytearray can be resized during the wait.
 */
#include "watch/private.h"

/* The qualified names of asyncio's coroutines, by sockop_kind. */
#define QUALIFIED "BaseSelectorEventLoop."
static const char *const qualnames[] = {QUALIFIED "sock_recv", QUALIFIED "sock_recv_into",
                                        QUALIFIED "sock_sendall"};

/* ---- steps ------------------------------------------------------------------------ */

/* Returns the direction for which the operation waits. */
static inline int
sockop_direction(const sockop *op)
{
    if (op->kind == OP_SENDALL)
        return GL_WRITING;
    return GL_READING;
}

/* Registers for the direction and stores the Future that the coroutine yields in op->wait.  -1 with
 * OSError (EBADF) for a closed socket, RuntimeError if a transport uses the fd, or another
 * exception of make_wait_future(). */
static int
sockop_wait(sockop *op)
{
    op->fd = gl_socket_number(op->sock);
    if (op->fd < 0)
        return gl_set_oserror(EBADF);
    if (gl_fd_ensure_no_transport(op->loop, op->fd, NULL) < 0)
        return -1;
    gl_watch_slot slot = {.sock = op->sock, .op = (PyObject *)op, .refused = op->refused};
    PyObject *fut = make_wait_future(op->loop, op->fd, sockop_direction(op), slot);
    if (fut == NULL)
        return -1;
    /* As Future.__await__ does before it yields itself. */
    if (PyObject_SetAttr(fut, G.s__asyncio_future_blocking, Py_True) < 0) {
        Py_DECREF(fut);
        return -1;
    }
    Py_XSETREF(op->wait, fut);
    return 0;
}

/* Ends the wait: clears its slot, if it is still there, and stops keeping the socket open.  The
 * Future itself is not cancelled.  Does nothing for a closed loop. */
static void
sockop_cancel_wait(sockop *op)
{
    if (op->wait && !op->loop->closed && op->loop->shared) {
        (void)watch_clear_slot(op->loop, op->fd, sockop_direction(op), op->wait);
        gl_kept_socket_end(op->loop, op->wait);
    }
}

/* Returns 0 if the Future of the wait is done, and stops keeping the socket open.  -1 with the
 * RuntimeError of Future.__await__ if the coroutine was resumed before that; the wait is then
 * ended. */
static int
sockop_check_wait_done(sockop *op)
{
    int is_done = gl_future_is_done(op->wait);
    if (is_done > 0) {
        gl_kept_socket_end(op->loop, op->wait);
        return 0;
    }
    if (is_done == 0)
        PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
    PyObject *exc = gl_take_exception();
    sockop_cancel_wait(op);
    gl_restore_exception(exc);
    return -1;
}

/* Sets OP_FINISHED and drops the references to the socket, the argument and the Future.  Also the
 * type's tp_clear; the reference to the loop stays.  Returns 0. */
static int
sockop_finish(PyObject *self)
{
    sockop *op = (sockop *)self;
    op->state = OP_FINISHED;
    Py_CLEAR(op->wait);
    if (op->view.obj)
        PyBuffer_Release(&op->view);
    Py_CLEAR(op->arg);
    Py_CLEAR(op->sock);
    Py_CLEAR(op->result);
    Py_CLEAR(op->failure);
    return 0;
}

/* Ends the wait, sets OP_FINISHED and drops the operation's references, except to the loop. */
static void
sockop_end(sockop *op)
{
    Py_INCREF(op);
    sockop_cancel_wait(op);
    (void)sockop_finish((PyObject *)op);
    Py_DECREF(op);
}

/* Returns 0 if the coroutine can be resumed.  -1 with ValueError if it is running and, if
 * `finished` is true, with RuntimeError if it has finished. */
static int
sockop_check(const sockop *op, bool finished)
{
    if (op->running)
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
    else if (finished && op->state == OP_FINISHED)
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
    else
        return 0;
    return -1;
}

/* Makes one step of the coroutine: a system call, and the wait that it may need.  PYGEN_NEXT with
 * the Future (OP_WAITING), PYGEN_RETURN with the value, or PYGEN_ERROR with an exception; the last
 * two finish the operation (OP_FINISHED). */
static PySendResult
sockop_step(sockop *op, PyObject **result)
{
    op->running = true;
    int t = -1;
    if ((op->state == OP_CREATED || sockop_check_wait_done(op) == 0) &&
        gl_loop_check_usable(op->loop) == 0) {
        Py_CLEAR(op->wait);
        t = sockop_attempt(op, result);
        if (t == 0 && sockop_wait(op) < 0)
            t = -1;
    }
    op->running = false;
    if (t == 0) {
        op->state = OP_WAITING;
        *result = Py_NewRef(op->wait);
        return PYGEN_NEXT;
    }
    (void)sockop_finish((PyObject *)op);
    if (t > 0)
        return PYGEN_RETURN;
    return PYGEN_ERROR;
}

/* Implements am_send: resumes the coroutine.  PYGEN_NEXT with the Future to wait for, PYGEN_RETURN
 * with the value, or PYGEN_ERROR: ValueError while a step runs, RuntimeError after the end,
 * TypeError for a first `value` other than None, else the exception of the operation. */
static PySendResult
sockop_am_send(PyObject *self, PyObject *value, PyObject **result)
{
    sockop *op = (sockop *)self;
    *result = NULL;
    GL_GUARD(__atomic_load_n(&op->owner_loop.loop, __ATOMIC_ACQUIRE));
    if (sockop_check(op, true) < 0)
        return PYGEN_ERROR;
    if (op->state == OP_CREATED && value != Py_None) {
        PyErr_SetString(PyExc_TypeError, "can't send non-None value to a just-started coroutine");
        return PYGEN_ERROR;
    }
    Py_INCREF(op);
    PySendResult r = sockop_step(op, result);
    Py_DECREF(op);
    return r;
}

/* send(value): like sockop_am_send(), but returns the Future, or raises StopIteration with the
 * value. */
static PyObject *
sockop_send(PyObject *self, PyObject *value)
{
    PyObject *result;
    if (sockop_am_send(self, value, &result) != PYGEN_RETURN)
        return result;
    gl_set_stop_iteration(result);
    Py_DECREF(result);
    return NULL;
}

static PyObject *
sockop_iternext(PyObject *self)
{
    return sockop_send(self, Py_None);
}

/* throw(): ends the operation and raises the given exception.  It is never handled, because the
 * coroutine has no code of its own.  ValueError while a step runs, RuntimeError after the end. */
static PyObject *
sockop_throw(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 1 || nargs > 3)
        return PyErr_Format(PyExc_TypeError, "throw() takes one to three arguments");
    if (sockop_check((sockop *)self, true) < 0)
        return NULL;
    sockop_end((sockop *)self);
    if (nargs == 1 && PyExceptionInstance_Check(args[0])) {
        PyErr_SetObject((PyObject *)Py_TYPE(args[0]), args[0]); /* keeps its own traceback */
        return NULL;
    }
    return PyObject_Vectorcall(G.throw_arguments, args, (size_t)nargs, NULL);
}

/* close(): ends the operation and returns None, also after its end.  ValueError while a step
 * runs. */
static PyObject *
sockop_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (sockop_check((sockop *)self, false) < 0)
        return NULL;
    sockop_end((sockop *)self);
    Py_RETURN_NONE;
}

/* ---- the object --------------------------------------------------------------------- */

static PyObject *
sockop_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<coroutine object %s at %p>", ((sockop *)self)->qualname, self);
}

/* Implements tp_traverse. */
static int
sockop_traverse(PyObject *self, visitproc visit, void *arg)
{
    sockop *op = (sockop *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(op->loop);
    Py_VISIT(op->sock);
    Py_VISIT(op->arg);
    Py_VISIT(op->wait);
    Py_VISIT(op->result);
    Py_VISIT(op->failure);
    Py_VISIT(op->view.obj);
    GL_OWNER_LOOP_VISIT(op);
    return 0;
}

/* Implements tp_finalize: warns of an operation that was never awaited, and ends one that waits.
 * Preserves the current exception. */
static void
sockop_finalize(PyObject *self)
{
    sockop *op = (sockop *)self;
    if (op->state == OP_FINISHED)
        return;
    PyObject *exc = gl_take_exception();
    if (op->state == OP_CREATED &&
        PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine '%s' was never awaited",
                         op->qualname) < 0)
        PyErr_WriteUnraisable(self);
    sockop_end(op);
    gl_restore_exception(exc);
}

/* Implements tp_dealloc.  Calls sockop_finalize() first, which can make the object reachable
 * again. */
static void
sockop_dealloc(PyObject *self)
{
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((sockop *)self)->weakrefs)
        PyObject_ClearWeakRefs(self);
    (void)sockop_finish(self);
    Py_CLEAR(((sockop *)self)->loop);
    GL_OWNER_LOOP_CLEAR((sockop *)self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef sockop_methods[] = {
    {"send", sockop_send, METH_O, PyDoc_STR("Resume; raise StopIteration with the result.")},
    {"throw", GL_FAST(sockop_throw), PyDoc_STR("Cancel the operation and raise the exception.")},
    {"close", sockop_close, METH_NOARGS, PyDoc_STR("Cancel the operation.")},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef sockop_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(sockop, weakrefs), READONLY, NULL},
    {"__name__", T_STRING, offsetof(sockop, name), READONLY, NULL},
    {"__qualname__", T_STRING, offsetof(sockop, qualname), READONLY, NULL},
    {"cr_running", T_BOOL, offsetof(sockop, running), READONLY, NULL},
    {"cr_await", T_OBJECT, offsetof(sockop, wait), READONLY, NULL},
    {"cr_frame", T_NONE, 0, READONLY, NULL},
    {"cr_code", T_NONE, 0, READONLY, NULL},
    {"cr_origin", T_NONE, 0, READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot sockop_slots[] = {
    {Py_tp_doc, PyDoc_STR("A socket operation in flight; a coroutine.")},
    {Py_am_await, PyObject_SelfIter},
    {Py_am_send, sockop_am_send},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, sockop_iternext},
    {Py_tp_repr, sockop_repr},
    {Py_tp_traverse, sockop_traverse},
    {Py_tp_clear, sockop_finish},
    {Py_tp_finalize, sockop_finalize},
    {Py_tp_dealloc, sockop_dealloc},
    {Py_tp_methods, sockop_methods},
    {Py_tp_members, sockop_members},
    {0, NULL},
};

static PyType_Spec sockop_spec = {
    .name = "goloop._core.SockOp",
    .basicsize = sizeof(sockop),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = sockop_slots,
};

GL_PRIVATE int
gl_sockop_init_type(PyObject *module)
{
    if (gl_type_make(&G.sockop_type, module, &sockop_spec, NULL) < 0 ||
        GL_GUARD_TYPE(G.sockop_type, sockop, owner_loop, NULL, GL_GUARD_DEALLOC) < 0)
        return -1;
    PyObject *cls = gl_import_attr("collections.abc", "Coroutine");
    PyObject *r = NULL;
    if (cls)
        r = PyObject_CallMethod(cls, GL_METHOD(register), "O", G.sockop_type);
    Py_XDECREF(cls);
    return gl_drop_result(r);
}

/* ---- methods of Loop ------------------------------------------------------------------ */

/* Returns the coroutine of one of the three methods, a new reference: a SockOp for a plain socket
 * and ordinary arguments, outside debug mode, else the coroutine of
 * goloop/_internal/net/sockets.py. */
static inline PyObject *
sockop_new(gl_loop *loop, enum sockop_kind kind, const gl_params *params, PyObject *const *args,
           Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value[2];
    Py_ssize_t size = 0;
    if (gl_args(params, loop, args, nargs, kwnames, value) < 0)
        return NULL;
    static const unsigned called[] = {GL_OWN_RECV, GL_OWN_RECV_INTO, GL_OWN_SEND};
    PyTypeObject *type = Py_TYPE(value[0]);
    bool plain = !loop->debug && (PyObject *)type == G.socket_socket &&
                 !(gl_replaced_methods(GL_RULE_SOCKET, type) & (called[kind] | GL_OWN_FILENO));
    if (plain && kind == OP_RECV) {
        if (PyLong_CheckExact(value[1]))
            size = PyLong_AsSsize_t(value[1]);
        else
            size = -1;
        if (size < 0)
            PyErr_Clear();
        plain = size > 0 && size <= GL_SCRATCH_SIZE;
    }
    PyObject *const by_methods[] = {G.s__sock_recv, G.s__sock_recv_into, G.s__sock_sendall};
    if (!plain) /* the coroutine of goloop/_internal/net/sockets.py */
        return PyObject_CallMethodObjArgs((PyObject *)loop, by_methods[kind], value[0], value[1],
                                          NULL);
    sockop *op = (sockop *)G.sockop_type->tp_alloc(G.sockop_type, 0);
    if (op == NULL)
        return NULL;
    op->loop = (gl_loop *)Py_NewRef((PyObject *)loop);
    op->sock = Py_NewRef(value[0]);
    op->arg = Py_NewRef(value[1]);
    op->size = size;
    op->kind = (uint8_t)kind;
    op->qualname = qualnames[kind];
    op->name = op->qualname + strlen(QUALIFIED);
    op->fd = -1;
    GL_OWNER_LOOP_SET(op, (PyObject *)loop);
    return (PyObject *)op;
}

/* Defines the method `name` of Loop; `second` is the name of its second parameter. */
#define SOCK_METHOD(name, kind, second)                                                            \
    static PyObject *loop_##name(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,           \
                                 PyObject *kwnames)                                                \
    {                                                                                              \
        static const gl_params params = GL_PARAMS("BaseSelectorEventLoop." #name, 2, 2, false,     \
                                                  GL_NAME(sock), GL_NAME(second));                 \
        return sockop_new(self, kind, &params, args, nargs, kwnames);                              \
    }

SOCK_METHOD(sock_recv, OP_RECV, n)
SOCK_METHOD(sock_recv_into, OP_RECV_INTO, buf)
SOCK_METHOD(sock_sendall, OP_SENDALL, data)

static PyMethodDef sockop_table[] = {
    {"sock_recv", GL_FASTKW(loop_sock_recv),
     PyDoc_STR("sock_recv($self, sock, n)\n--\n\n"
               "Receive at most n bytes from a non-blocking socket; a coroutine.")},
    {"sock_recv_into", GL_FASTKW(loop_sock_recv_into),
     PyDoc_STR("sock_recv_into($self, sock, buf)\n--\n\n"
               "Receive into a writable buffer; a coroutine that gives the byte count.")},
    {"sock_sendall", GL_FASTKW(loop_sock_sendall),
     PyDoc_STR("sock_sendall($self, sock, data)\n--\n\n"
               "Send all bytes of data on a non-blocking socket; a coroutine.")},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_sockop_methods = sockop_table;
