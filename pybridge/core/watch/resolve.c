/*
 * resolve.c: getaddrinfo on threads of the library's, through libc.
 *
 * Loop._resolve makes a Future and a request number; the answer comes back as a
 * completion.  A cancelled Future lets its answer fall on the floor.
 */
#include "watch/private.h"

#include <netdb.h>

/* One entry: (family, type, proto, canonname, sockaddr), the first two as plain numbers. */
static PyObject *
addrinfo_entry(const struct addrinfo *ai)
{
    PyObject *address =
        gl_address_object((const uint8_t *)ai->ai_addr, (uint32_t)ai->ai_addrlen);
    if (address == NULL && !PyErr_Occurred())
        address = Py_BuildValue("(iy#)", ai->ai_family, (const char *)ai->ai_addr,
                                (Py_ssize_t)ai->ai_addrlen);
    if (address == NULL)
        return NULL;
    return Py_BuildValue("(iiisN)", ai->ai_family, ai->ai_socktype, ai->ai_protocol,
                         ai->ai_canonname ? ai->ai_canonname : "", address);
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

/* The future's end: the list, or the exception that socket.getaddrinfo raises. */
static int
settle(PyObject *fut, const gl_completion *c)
{
    int is_done = gl_future_is_done(fut);
    if (is_done)
        return is_done < 0 ? -1 : 0;
    PyObject *method = G.s_set_result, *value = NULL;
    if (c->res == 0) {
        value = addrinfo_list(c->ptr);
    } else {
        method = G.s_set_exception;
        value = c->res == EAI_SYSTEM
                    ? gl_oserror((int)c->arg)
                    : PyObject_CallFunction(G.gaierror, "is", c->res, gai_strerror(c->res));
    }
    if (value == NULL) {
        method = G.s_set_exception;
        value = gl_take_exception();
    }
    int rc = gl_call_method(fut, method, value);
    Py_DECREF(value);
    return rc;
}

GL_PRIVATE int
gl_resolved(gl_loop *loop, const gl_completion *c)
{
    PyObject *key = PyLong_FromUnsignedLong(c->id), *asked = NULL;
    if (key && loop->resolving) {
        asked = Py_XNewRef(PyDict_GetItemWithError(loop->resolving, key));
        if (asked)
            PyDict_DelItem(loop->resolving, key);
    }
    Py_XDECREF(key);
    int rc = 0;
    if (asked) {
        gl_histogram_add(&loop->shared->metrics.dns_time,
                         gl_monotonic_ns() - PyLong_AsLongLong(PyTuple_GET_ITEM(asked, 1)));
        rc = settle(PyTuple_GET_ITEM(asked, 0), c);
        Py_DECREF(asked);
    }
    if (c->ptr)
        freeaddrinfo(c->ptr);
    return gl_unraisable_unless_leaving(rc, (PyObject *)loop);
}

/* Hands a request to Go and notes who waits for it; runs no Python. */
static int
resolve_start(gl_loop *loop, PyObject *key, PyObject *asked, uint32_t request,
              const char *const *text, const int *number)
{
    /* lint: allow check-commit: the keys are exact ints */
    if (PyDict_SetItem(loop->resolving, key, asked) < 0)
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

/* _resolve(host, port, flags, family, type, proto): host and port are bytes or None. */
static PyObject *
loop_resolve(gl_loop *self, PyObject *const *args, Py_ssize_t nargs)
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
    PyObject *asked = fut ? Py_BuildValue("(OL)", fut, (long long)gl_monotonic_ns()) : NULL;
    PyObject *key = PyLong_FromUnsignedLong(request);
    /* Making these may have run Python: only now is it the loop's turn to be looked at. */
    if (asked == NULL || dict == NULL || key == NULL || gl_loop_check_usable(self) < 0 ||
        gl_loop_check_own_thread(self) < 0) {
        Py_CLEAR(fut);
    } else {
        if (self->resolving == NULL)
            self->resolving = Py_NewRef(dict);
        if (resolve_start(self, key, asked, request, text, number) < 0)
            Py_CLEAR(fut);
    }
    Py_XDECREF(key);
    Py_XDECREF(dict);
    Py_XDECREF(asked);
    return fut;
}

static PyMethodDef resolve_table[] = {
    {"_resolve", GL_FAST(loop_resolve), NULL},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const gl_resolve_methods = resolve_table;
