/*
 * sockop.c: sock_recv, sock_recv_into and sock_sendall as native coroutines.
 *
 *     created --first send--> try the system call --done--> StopIteration(value)
 *                                  |        ^
 *                               EAGAIN      | the fd is ready
 *                                  v        |
 *                            waiting for a Future
 *
 *     throw() or close() while waiting: the wait is given up, the exception goes on.
 *
 * The bytes are received (sent) when the task runs again, not when the fd turns
 * ready, so a cancelled receive loses nothing.  System calls use MSG_DONTWAIT: a
 * socket that somebody set to blocking does not stop the loop.
 *
 * Only a plain socket.socket is driven by its fd; any other object (a subclass, a
 * stand-in) by its own recv, recv_into and send methods, as asyncio does.  The fd is the one
 * that the socket has when a call is made, none where it was closed while we waited: then
 * the call fails with EBADF.  The buffer of recv_into is taken for each try anew, so a
 * bytearray can be resized while nothing has come.
 */
#include "watch/private.h"

enum sockop_kind { OP_RECV, OP_RECV_INTO, OP_SENDALL };
enum sockop_state { OP_CREATED, OP_WAITING, OP_RUNNING, OP_FINISHED };

#define GL_SCRATCH_SIZE (256 * 1024)

typedef struct {
    PyObject_HEAD
    PyObject *weakrefs;
    gl_loop *loop;
    PyObject *sock;
    PyObject *arg;       /* n, the buffer, or the data */
    PyObject *wait;      /* the Future that we wait for */
    Py_buffer view;      /* sendall; view.obj is NULL before the first step */
    Py_ssize_t done;     /* sendall: bytes sent */
    int fd;              /* the number that `wait` is about */
    uint8_t kind, state;
    bool plain;          /* driven by fd */
} sockop;

static const char *const sockop_names[] = {"sock_recv", "sock_recv_into", "sock_sendall"};

/* ---- one try ------------------------------------------------------------------- */

/* A try gives 1 and *result, 0 for "would block", -1 with an exception. */

/* recv through the object's own method. */
static int
try_method(PyObject *sock, PyObject *name, PyObject *arg, PyObject **result)
{
    *result = PyObject_CallMethodOneArg(sock, name, arg);
    if (*result)
        return 1;
    if (PyErr_ExceptionMatches(PyExc_BlockingIOError) ||
        PyErr_ExceptionMatches(PyExc_InterruptedError)) {
        PyErr_Clear();
        return 0;
    }
    return -1;
}

static inline bool
would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* The socket's descriptor as it is now; borrowed. */
static inline gl_lease
sockop_lease(sockop *op)
{
    gl_lease lease = GL_NO_LEASE;
    lease.number = gl_socket_number(op->sock);
    return lease;
}

static int
try_recv(sockop *op, PyObject **result)
{
    Py_ssize_t n = -1;
    if (op->plain && PyLong_CheckExact(op->arg)) {
        n = PyLong_AsSsize_t(op->arg);
        if (n < 0)
            PyErr_Clear();
    }
    if (n <= 0)
        return try_method(op->sock, G.s_recv, op->arg, result);
    gl_loop *loop = op->loop;
    if (loop->scratch == NULL) {
        loop->scratch = PyMem_RawMalloc(GL_SCRATCH_SIZE);
        if (loop->scratch == NULL) {
            PyErr_NoMemory();
            return -1;
        }
    }
    if (n > GL_SCRATCH_SIZE)
        n = GL_SCRATCH_SIZE;
    gl_lease lease = sockop_lease(op);
    ssize_t got = gl_call_recv(&lease, loop->scratch, (size_t)n, MSG_DONTWAIT);
    if (got < 0)
        return would_block() ? 0 : gl_set_oserror(errno);
    *result = PyBytes_FromStringAndSize((const char *)loop->scratch, got);
    return *result ? 1 : -1;
}

static int
try_recv_into(sockop *op, PyObject **result)
{
    if (!op->plain)
        return try_method(op->sock, G.s_recv_into, op->arg, result);
    Py_buffer view;
    if (PyObject_GetBuffer(op->arg, &view, PyBUF_WRITABLE) < 0) {
        /* The words are those of the socket's own method. */
        PyErr_Clear();
        return try_method(op->sock, G.s_recv_into, op->arg, result);
    }
    gl_lease lease = sockop_lease(op);
    ssize_t got = gl_call_recv(&lease, view.buf, (size_t)view.len, MSG_DONTWAIT);
    int err = errno;
    PyBuffer_Release(&view);
    errno = err;
    if (got < 0)
        return would_block() ? 0 : gl_set_oserror(err);
    *result = PyLong_FromSsize_t(got);
    return *result ? 1 : -1;
}

/* sendall may call it many times; 1 once all is sent. */
static int
try_send(sockop *op, PyObject **result)
{
    if (op->view.obj == NULL && PyObject_GetBuffer(op->arg, &op->view, PyBUF_SIMPLE) < 0)
        return -1;
    do {
        ssize_t sent;
        if (op->plain) {
            gl_lease lease = sockop_lease(op);
            sent = gl_call_send(&lease, (char *)op->view.buf + op->done,
                                (size_t)(op->view.len - op->done), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0)
                return would_block() ? 0 : gl_set_oserror(errno);
        } else {
            PyObject *rest = PyMemoryView_FromObject(op->arg), *r;
            PyObject *bytes = rest ? PyObject_CallMethod(rest, "cast", "s", "B") : NULL;
            PyObject *slice = bytes ? PySequence_GetSlice(bytes, op->done, op->view.len) : NULL;
            int t = slice ? try_method(op->sock, G.s_send, slice, &r) : -1;
            Py_XDECREF(slice);
            Py_XDECREF(bytes);
            Py_XDECREF(rest);
            if (t <= 0)
                return t;
            sent = PyLong_AsSsize_t(r);
            Py_DECREF(r);
            if (sent == -1 && PyErr_Occurred())
                return -1;
        }
        op->done += sent;
    } while (op->done < op->view.len && op->plain);
    if (op->done < op->view.len)
        return 0;
    *result = Py_NewRef(Py_None);
    return 1;
}

/* ---- steps ------------------------------------------------------------------------ */

/* asyncio's checks at the start of each sock_* coroutine. */
static int
sockop_begin(sockop *op)
{
    PyObject *sock = op->sock;
    op->plain = (PyObject *)Py_TYPE(sock) == G.socket_socket;
    if (!op->plain) {
        PyObject *modules = PyImport_GetModuleDict();
        PyObject *ssl = PyDict_GetItemString(modules, "ssl"); /* borrowed */
        PyObject *cls = ssl ? PyObject_GetAttrString(ssl, "SSLSocket") : NULL;
        if (cls == NULL)
            PyErr_Clear();
        int is_ssl = cls ? PyObject_IsInstance(sock, cls) : 0;
        Py_XDECREF(cls);
        if (is_ssl < 0)
            return -1;
        if (is_ssl) {
            PyErr_SetString(PyExc_TypeError, "Socket cannot be of type SSLSocket");
            return -1;
        }
    }
    if (op->loop->debug) {
        PyObject *timeout = PyObject_CallMethodNoArgs(sock, G.s_gettimeout);
        if (timeout == NULL)
            return -1;
        PyObject *zero = PyLong_FromLong(0);
        int nonzero = zero ? PyObject_RichCompareBool(timeout, zero, Py_NE) : -1;
        Py_XDECREF(zero);
        Py_DECREF(timeout);
        if (nonzero < 0)
            return -1;
        if (nonzero) {
            PyErr_SetString(PyExc_ValueError, "the socket must be non-blocking");
            return -1;
        }
    }
    return 0;
}

/* Registers for the direction and makes the Future to yield. */
static int
sockop_wait(sockop *op)
{
    int which = op->kind == OP_SENDALL ? GL_WRITING : GL_READING;
    long number;
    if (op->plain) {
        number = gl_socket_number(op->sock);
    } else {
        PyObject *told = PyObject_CallMethodNoArgs(op->sock, G.s_fileno);
        number = told ? PyLong_AsLong(told) : -1;
        Py_XDECREF(told);
        if (number == -1 && PyErr_Occurred())
            return -1;
    }
    op->fd = number < 0 || number > INT_MAX ? -1 : (int)number;
    if (op->fd < 0)
        return gl_set_oserror(EBADF);
    if (gl_fd_ensure_no_transport(op->loop, op->fd, NULL) < 0)
        return -1;
    PyObject *fut = gl_wait_fd(op->loop, op->fd, which, op->plain ? op->sock : NULL);
    if (fut == NULL)
        return -1;
    /* What Future.__await__ does before it yields itself. */
    if (PyObject_SetAttr(fut, G.s__asyncio_future_blocking, Py_True) < 0) {
        Py_DECREF(fut);
        return -1;
    }
    Py_XSETREF(op->wait, fut);
    return 0;
}

/* Gives up the wait: the place at the fd is emptied if it is still ours. */
static void
sockop_give_up(sockop *op)
{
    if (op->wait && !op->loop->closed && op->loop->shared)
        (void)watch_unplace(op->loop, op->fd, op->kind == OP_SENDALL ? GL_WRITING : GL_READING,
                            op->wait);
}

/* What Future.__await__ says to whoever goes on before it is done. */
static int
sockop_resume(sockop *op)
{
    int is_done = gl_future_is_done(op->wait);
    if (is_done > 0)
        return 0;
    PyObject *exc = is_done < 0 ? gl_take_exception() : NULL;
    sockop_give_up(op);
    if (exc != NULL)
        gl_restore_exception(exc);
    else
        PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
    return -1;
}

static void
sockop_finish(sockop *op)
{
    op->state = OP_FINISHED;
    Py_CLEAR(op->wait);
    if (op->view.obj)
        PyBuffer_Release(&op->view);
    Py_CLEAR(op->arg);
    Py_CLEAR(op->sock);
}

/* The heart of send(): PYGEN_NEXT with the future, PYGEN_RETURN with the value. */
static PySendResult
sockop_step(sockop *op, PyObject **result)
{
    *result = NULL;
    if (op->state == OP_FINISHED) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return PYGEN_ERROR;
    }
    if (op->state == OP_RUNNING) {
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
        return PYGEN_ERROR;
    }
    bool first = op->state == OP_CREATED;
    op->state = OP_RUNNING;
    if ((first ? sockop_begin(op) : sockop_resume(op)) < 0 ||
        gl_loop_check_usable(op->loop) < 0) {
        sockop_finish(op);
        return PYGEN_ERROR;
    }
    Py_CLEAR(op->wait);
    int t = op->kind == OP_RECV        ? try_recv(op, result)
            : op->kind == OP_RECV_INTO ? try_recv_into(op, result)
                                       : try_send(op, result);
    if (t == 0 && sockop_wait(op) < 0)
        t = -1;
    if (t == 0) {
        op->state = OP_WAITING;
        *result = Py_NewRef(op->wait);
        return PYGEN_NEXT;
    }
    sockop_finish(op);
    return t > 0 ? PYGEN_RETURN : PYGEN_ERROR;
}

static PySendResult
sockop_am_send(PyObject *self, PyObject *value, PyObject **result)
{
    sockop *op = (sockop *)self;
    if (op->state == OP_CREATED && value != Py_None) {
        *result = NULL;
        PyErr_SetString(PyExc_TypeError,
                        "can't send non-None value to a just-started coroutine");
        return PYGEN_ERROR;
    }
    Py_INCREF(op);
    PySendResult r = sockop_step(op, result);
    Py_DECREF(op);
    return r;
}

static PyObject *
send_result(PySendResult r, PyObject *result)
{
    if (r == PYGEN_RETURN) {
        if (result == Py_None)
            PyErr_SetNone(PyExc_StopIteration);
        else {
            /* A tuple or exception as value must not be unpacked: make the instance. */
            PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
            if (stop) {
                PyErr_SetObject(PyExc_StopIteration, stop);
                Py_DECREF(stop);
            }
        }
        Py_DECREF(result);
        return NULL;
    }
    return result;
}

static PyObject *
sockop_iternext(PyObject *self)
{
    PyObject *result;
    PySendResult r = sockop_am_send(self, Py_None, &result);
    return send_result(r, result);
}

static PyObject *
sockop_send(PyObject *self, PyObject *value)
{
    PyObject *result;
    PySendResult r = sockop_am_send(self, value, &result);
    return send_result(r, result);
}

static PyObject *
sockop_throw(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    sockop *op = (sockop *)self;
    if (nargs < 1 || nargs > 3) {
        PyErr_SetString(PyExc_TypeError, "throw() takes one to three arguments");
        return NULL;
    }
    if (op->state == OP_FINISHED) {
        PyErr_SetString(PyExc_RuntimeError, "cannot reuse already awaited coroutine");
        return NULL;
    }
    if (op->state == OP_RUNNING) {
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
        return NULL;
    }
    Py_INCREF(op);
    sockop_give_up(op);
    sockop_finish(op);
    Py_DECREF(op);
    PyObject *type = args[0], *value = nargs > 1 ? args[1] : NULL;
    PyObject *tb = nargs > 2 && args[2] != Py_None ? args[2] : NULL;
    if (value == Py_None)
        value = NULL;
    if (PyExceptionInstance_Check(type)) {
        if (value) {
            PyErr_SetString(PyExc_TypeError,
                            "instance exception may not have a separate value");
            return NULL;
        }
        value = type;
        type = (PyObject *)Py_TYPE(type);
    } else if (!PyExceptionClass_Check(type)) {
        PyErr_Format(PyExc_TypeError,
                     "exceptions must be classes or instances deriving from "
                     "BaseException, not %s",
                     Py_TYPE(type)->tp_name);
        return NULL;
    }
    if (tb == NULL && value && PyExceptionInstance_Check(value)) {
        PyErr_SetObject(type, value); /* keeps the traceback that the value has */
        return NULL;
    }
    PyErr_Restore(Py_NewRef(type), Py_XNewRef(value), Py_XNewRef(tb));
    return NULL;
}

static PyObject *
sockop_close(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    sockop *op = (sockop *)self;
    if (op->state == OP_RUNNING) {
        PyErr_SetString(PyExc_ValueError, "coroutine already executing");
        return NULL;
    }
    if (op->state != OP_FINISHED) {
        Py_INCREF(op);
        sockop_give_up(op);
        sockop_finish(op);
        Py_DECREF(op);
    }
    Py_RETURN_NONE;
}

/* ---- the object --------------------------------------------------------------------- */

static PyObject *
sockop_self(PyObject *self)
{
    return Py_NewRef(self);
}

static PyObject *
sockop_get_name(PyObject *self, void *qualified)
{
    const char *name = sockop_names[((sockop *)self)->kind];
    return qualified ? PyUnicode_FromFormat("Loop.%s", name) : PyUnicode_FromString(name);
}

static PyObject *
sockop_get_running(PyObject *self, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(((sockop *)self)->state == OP_RUNNING);
}

static PyObject *
sockop_get_await(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *wait = ((sockop *)self)->wait;
    return Py_NewRef(wait ? wait : Py_None);
}

static PyObject *
sockop_get_none(PyObject *Py_UNUSED(self), void *Py_UNUSED(closure))
{
    Py_RETURN_NONE;
}

static PyObject *
sockop_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<coroutine object Loop.%s at %p>",
                                sockop_names[((sockop *)self)->kind], self);
}

static int
sockop_traverse(PyObject *self, visitproc visit, void *arg)
{
    sockop *op = (sockop *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(op->loop);
    Py_VISIT(op->sock);
    Py_VISIT(op->arg);
    Py_VISIT(op->wait);
    Py_VISIT(op->view.obj);
    return 0;
}

static int
sockop_clear(PyObject *self)
{
    sockop *op = (sockop *)self;
    op->state = OP_FINISHED;
    Py_CLEAR(op->wait);
    Py_CLEAR(op->sock);
    Py_CLEAR(op->arg);
    if (op->view.obj)
        PyBuffer_Release(&op->view);
    return 0;
}

static void
sockop_finalize(PyObject *self)
{
    sockop *op = (sockop *)self;
    if (op->state == OP_FINISHED)
        return;
    PyObject *exc = PyErr_Occurred() ? gl_take_exception() : NULL;
    if (op->state == OP_CREATED) {
        if (PyErr_WarnFormat(PyExc_RuntimeWarning, 1, "coroutine 'Loop.%s' was never awaited",
                             sockop_names[op->kind]) < 0)
            PyErr_WriteUnraisable(self);
    } else {
        sockop_give_up(op);
    }
    sockop_finish(op);
    if (exc)
        gl_restore_exception(exc);
}

static void
sockop_dealloc(PyObject *self)
{
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (((sockop *)self)->weakrefs)
        PyObject_ClearWeakRefs(self);
    (void)sockop_clear(self);
    Py_CLEAR(((sockop *)self)->loop);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef sockop_methods[] = {
    {"send", sockop_send, METH_O, PyDoc_STR("Resume; raise StopIteration with the result.")},
    {"throw", (PyCFunction)(void (*)(void))sockop_throw, METH_FASTCALL,
     PyDoc_STR("Give up the operation and raise the exception.")},
    {"close", sockop_close, METH_NOARGS, PyDoc_STR("Give up the operation.")},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef sockop_getset[] = {
    {"__name__", sockop_get_name, NULL, NULL, NULL},
    {"__qualname__", sockop_get_name, NULL, NULL, (void *)1},
    {"cr_running", sockop_get_running, NULL, NULL, NULL},
    {"cr_await", sockop_get_await, NULL, NULL, NULL},
    {"cr_frame", sockop_get_none, NULL, NULL, NULL},
    {"cr_code", sockop_get_none, NULL, NULL, NULL},
    {"cr_origin", sockop_get_none, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef sockop_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(sockop, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot sockop_slots[] = {
    {Py_tp_doc, PyDoc_STR("A socket operation in flight; a coroutine.")},
    {Py_am_await, sockop_self},
    {Py_am_send, sockop_am_send},
    {Py_tp_iter, sockop_self},
    {Py_tp_iternext, sockop_iternext},
    {Py_tp_repr, sockop_repr},
    {Py_tp_traverse, sockop_traverse},
    {Py_tp_clear, sockop_clear},
    {Py_tp_finalize, sockop_finalize},
    {Py_tp_dealloc, sockop_dealloc},
    {Py_tp_methods, sockop_methods},
    {Py_tp_getset, sockop_getset},
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
    G.sockop_type = (PyTypeObject *)PyType_FromSpec(&sockop_spec);
    if (G.sockop_type == NULL || PyModule_AddType(module, G.sockop_type) < 0)
        return -1;
    PyObject *abc = PyImport_ImportModule("collections.abc");
    PyObject *cls = abc ? PyObject_GetAttrString(abc, "Coroutine") : NULL;
    PyObject *r = cls ? PyObject_CallMethod(cls, "register", "O", G.sockop_type) : NULL;
    Py_XDECREF(abc);
    Py_XDECREF(cls);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

/* ---- methods of Loop ------------------------------------------------------------------ */

static PyObject *
sockop_new(gl_loop *loop, enum sockop_kind kind, PyObject *const *args, Py_ssize_t nargs,
           PyObject *kwnames)
{
    static const char *const arg_names[] = {"n", "buf", "data"};
    PyObject *value[2] = {nargs > 0 ? args[0] : NULL, nargs > 1 ? args[1] : NULL};
    if (nargs > 2) {
        PyErr_Format(PyExc_TypeError, "%s() takes 3 positional arguments but %zd were given",
                     sockop_names[kind], nargs + 1);
        return NULL;
    }
    Py_ssize_t nkw = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < nkw; i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        int which = PyUnicode_CompareWithASCIIString(key, "sock") == 0            ? 0
                    : PyUnicode_CompareWithASCIIString(key, arg_names[kind]) == 0 ? 1
                                                                                  : -1;
        if (which < 0 || value[which]) {
            PyErr_Format(PyExc_TypeError,
                         which < 0 ? "%s() got an unexpected keyword argument '%U'"
                                   : "%s() got multiple values for argument '%U'",
                         sockop_names[kind], key);
            return NULL;
        }
        value[which] = args[nargs + i];
    }
    if (value[0] == NULL || value[1] == NULL) {
        PyErr_Format(PyExc_TypeError, "%s() missing required argument: '%s'",
                     sockop_names[kind], value[0] ? arg_names[kind] : "sock");
        return NULL;
    }
    sockop *op = (sockop *)G.sockop_type->tp_alloc(G.sockop_type, 0);
    if (op == NULL)
        return NULL;
    op->loop = (gl_loop *)Py_NewRef((PyObject *)loop);
    op->sock = Py_NewRef(value[0]);
    op->arg = Py_NewRef(value[1]);
    op->kind = (uint8_t)kind;
    op->state = OP_CREATED;
    op->fd = -1;
    return (PyObject *)op;
}

GL_PRIVATE PyObject *
gl_loop_sock_recv(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return sockop_new(self, OP_RECV, args, nargs, kwnames);
}

GL_PRIVATE PyObject *
gl_loop_sock_recv_into(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return sockop_new(self, OP_RECV_INTO, args, nargs, kwnames);
}

GL_PRIVATE PyObject *
gl_loop_sock_sendall(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return sockop_new(self, OP_SENDALL, args, nargs, kwnames);
}
