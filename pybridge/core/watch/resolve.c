/*
 * resolve.c: getaddrinfo on threads of the library's, through libc.
 *
 * Loop._resolve makes a Future and a request number; the answer comes back as a
 * completion.  A cancelled Future lets its answer fall on the floor.
 */
#include "watch/private.h"

#include <netdb.h>

/* value as a member of the enum, or the plain number where the enum has none, as
 * socket.getaddrinfo has it. */
static PyObject *
enum_member(PyObject *enum_class, int value)
{
    PyObject *n = PyLong_FromLong(value);
    PyObject *m = n ? PyObject_CallOneArg(enum_class, n) : NULL;
    if (m == NULL && n && PyErr_ExceptionMatches(PyExc_ValueError)) {
        PyErr_Clear();
        return n;
    }
    Py_XDECREF(n);
    return m;
}

/* One entry: (family, type, proto, canonname, sockaddr). */
static PyObject *
addrinfo_entry(const struct addrinfo *ai)
{
    PyObject *family = enum_member(G.AddressFamily, ai->ai_family);
    PyObject *type = enum_member(G.SocketKind, ai->ai_socktype);
    PyObject *address =
        gl_address_object((const uint8_t *)ai->ai_addr, (uint32_t)ai->ai_addrlen);
    if (address == NULL && !PyErr_Occurred())
        address = Py_BuildValue("(iy#)", ai->ai_family, (const char *)ai->ai_addr,
                                (Py_ssize_t)ai->ai_addrlen);
    PyObject *entry = NULL;
    if (family && type && address)
        entry = Py_BuildValue("(OOisO)", family, type, ai->ai_protocol,
                              ai->ai_canonname ? ai->ai_canonname : "", address);
    Py_XDECREF(family);
    Py_XDECREF(type);
    Py_XDECREF(address);
    return entry;
}

static PyObject *
addrinfo_list(const struct addrinfo *ai)
{
    PyObject *list = PyList_New(0);
    for (; list && ai; ai = ai->ai_next) {
        PyObject *entry = addrinfo_entry(ai);
        if (entry == NULL || PyList_Append(list, entry) < 0)
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    return list;
}

/* The exception that socket.getaddrinfo raises for an EAI code. */
static PyObject *
gaierror_object(int code, int err)
{
    if (code == EAI_SYSTEM)
        return gl_oserror(err);
    return PyObject_CallFunction(G.gaierror, "is", code, gai_strerror(code));
}

/* Settles a future unless it is done. */
static int
settle(PyObject *fut, PyObject *method, PyObject *value)
{
    PyObject *done = PyObject_CallMethodNoArgs(fut, G.s_done);
    int is_done = done ? PyObject_IsTrue(done) : -1;
    Py_XDECREF(done);
    if (is_done)
        return is_done < 0 ? -1 : 0;
    PyObject *r = PyObject_CallMethodOneArg(fut, method, value);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

GL_PRIVATE int
gl_resolved(gl_loop *loop, const gl_completion *c)
{
    PyObject *key = PyLong_FromUnsignedLong(c->id);
    PyObject *fut = NULL;
    if (key && loop->resolving) {
        fut = PyDict_GetItemWithError(loop->resolving, key);
        Py_XINCREF(fut);
        if (fut)
            PyDict_DelItem(loop->resolving, key);
    }
    Py_XDECREF(key);
    int r = 0;
    if (fut) {
        if (c->res == 0) {
            PyObject *list = addrinfo_list(c->ptr);
            if (list) {
                r = settle(fut, G.s_set_result, list);
                Py_DECREF(list);
            } else {
                PyObject *exc = gl_take_exception();
                r = settle(fut, G.s_set_exception, exc);
                Py_DECREF(exc);
            }
        } else {
            PyObject *exc = gaierror_object(c->res, (int)c->arg);
            r = exc ? settle(fut, G.s_set_exception, exc) : -1;
            Py_XDECREF(exc);
        }
        Py_DECREF(fut);
    }
    if (c->ptr)
        freeaddrinfo(c->ptr);
    if (r < 0 && !PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) &&
        !PyErr_ExceptionMatches(PyExc_SystemExit)) {
        PyErr_WriteUnraisable((PyObject *)loop);
        r = 0;
    }
    return r;
}

/* Hands a request to Go and notes who waits for it; runs no Python. */
static int
resolve_start(gl_loop *loop, PyObject *key, PyObject *fut, uint32_t request,
              const char *const *text, const int *number)
{
    /* lint: allow check-commit: the keys are exact ints */
    if (PyDict_SetItem(loop->resolving, key, fut) < 0)
        return -1;
    int32_t r = loop->go->resolve(loop->reactor, request, text[0], text[1], number[0], number[1],
                                  number[2], number[3]);
    if (r >= 0)
        return 0;
    PyDict_DelItem(loop->resolving, key);
    if (r != -EAGAIN)
        return gl_set_oserror(-r);
    PyErr_SetString(PyExc_RuntimeError, "can't start new thread"); /* asyncio's executor's words */
    return -1;
}

GL_PRIVATE PyObject *
gl_loop_resolve(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "_resolve() takes 6 arguments");
        return NULL;
    }
    const char *text[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        if (args[i] == Py_None)
            continue;
        if (PyBytes_AsStringAndSize(args[i], (char **)&text[i], NULL) < 0)
            return NULL;
    }
    int number[4];
    for (int i = 0; i < 4; i++) {
        long n = PyLong_AsLong(args[2 + i]);
        if (n == -1 && PyErr_Occurred())
            return NULL;
        number[i] = (int)n;
    }
    if (gl_loop_check_usable(self) < 0)
        return NULL;
    uint32_t request = self->next_request++;
    PyObject *fut = gl_new_future(self), *dict = PyDict_New();
    PyObject *key = PyLong_FromUnsignedLong(request);
    /* Making these may have run Python: only now is it the loop's turn to be looked at. */
    if (fut == NULL || dict == NULL || key == NULL || gl_loop_check_usable(self) < 0 ||
        gl_loop_check_own_thread(self) < 0) {
        Py_CLEAR(fut);
    } else {
        if (self->resolving == NULL)
            self->resolving = Py_NewRef(dict);
        if (resolve_start(self, key, fut, request, text, number) < 0)
            Py_CLEAR(fut);
    }
    Py_XDECREF(key);
    Py_XDECREF(dict);
    return fut;
}
