/*
 * clients.c: the type goloop._core.Clients, the connections of one asyncio.Server since
 * Python 3.13.
 *
 * It stands in the place of the server's WeakSet: a weak reference and its entry there cost
 * more than 130 bytes for each connection, and two calls of Python.  A transport notes its set
 * and its place in it instead, and leaves it when it dies, as it would leave the WeakSet.
 *
 *     set->item[t->place] == t  exactly while  t->clients == set
 *
 * What is no transport of ours, or is in the set of another server, is kept by `others`, a
 * WeakSet; and without a GIL what belongs to another loop.  Everything here runs with the GIL, or the loop's lock.
 */
#include "transports/transports.h"

typedef struct gl_clients {
    PyObject_HEAD
    gl_loop *loop;                /* whose transports these are */
    PyObject *others;
    gl_transport **item;          /* borrowed */
    uint32_t len, cap;
    GL_HOME
} gl_clients;

GL_NO_PYTHON GL_PRIVATE void
transport_leave_clients(gl_transport *t)
{
    gl_clients *set = t->clients;
    if (set == NULL)
        return;
    GL_WRITE(set->len, set->len - 1);
    gl_transport *last = set->item[set->len];
    set->item[t->place] = last;
    last->place = t->place;
    t->clients = NULL;
    if (set->len == 0) {
        PyMem_RawFree(set->item);
        set->item = NULL;
        set->cap = 0;
    }
}

/* As a transport that may enter a set, or NULL. */
static gl_transport *
as_client(PyObject *o)
{
    return PyObject_TypeCheck(o, G.stream_type) ? (gl_transport *)o : NULL;
}

/* Whether the thread that has the set's loop has the transport too. */
static inline bool
has_lock_of(const gl_clients *set, const gl_transport *t)
{
#ifdef GL_FREE_THREADED
    return t->home.loop == set->loop;
#else
    (void)set, (void)t;
    return true;
#endif
}

static PyObject *
clients_add(gl_clients *set, PyObject *transport)
{
    gl_transport *t = as_client(transport);
    if (t == NULL || (t->clients != NULL && t->clients != set) || !has_lock_of(set, t))
        return PyObject_CallMethod(set->others, "add", "O", transport);
    if (t->clients == NULL) {
        if (!gl_grow(&set->item, &set->cap, set->len, sizeof(*set->item), 8))
            return PyErr_NoMemory();
        t->place = set->len;
        t->clients = set;
        set->item[set->len] = t;
        GL_WRITE(set->len, set->len + 1);
    }
    Py_RETURN_NONE;
}

static PyObject *
clients_discard(gl_clients *set, PyObject *transport)
{
    gl_transport *t = as_client(transport);
    if (t == NULL || t->clients != set)
        return PyObject_CallMethod(set->others, "discard", "O", transport);
    transport_leave_clients(t);
    Py_RETURN_NONE;
}

static PyObject *
clients_copy(gl_clients *set, PyObject *Py_UNUSED(ignored))
{
    PyObject *copy = PySet_New(set->others);
    /* Adding compares, and a collection may run Python: the set may change meanwhile. */
    for (uint32_t i = 0; copy != NULL && i < set->len; i++) {
        PyObject *t = gl_try_newref((PyObject *)set->item[i]);
        if (t != NULL && PySet_Add(copy, t) < 0)
            Py_CLEAR(copy);
        Py_XDECREF(t);
    }
    return copy;
}

/* From any thread: a shared listener's loops compare theirs. */
static Py_ssize_t
clients_length(PyObject *self)
{
    gl_clients *set = (gl_clients *)self;
    Py_ssize_t others = PyObject_Size(set->others), own = (Py_ssize_t)GL_READ(set->len);
    if (others > PY_SSIZE_T_MAX - own) {
        PyErr_SetString(PyExc_OverflowError, "the set has too many members");
        return -1;
    }
    return others < 0 ? -1 : others + own;
}

static int
clients_contains(PyObject *self, PyObject *transport)
{
    gl_clients *set = (gl_clients *)self;
    GL_GUARD(set->loop);
    gl_transport *t = as_client(transport);
    return t != NULL && t->clients == set ? 1 : PySequence_Contains(set->others, transport);
}

static PyObject *
clients_iter(PyObject *self)
{
    GL_GUARD(((gl_clients *)self)->loop);
    PyObject *copy = clients_copy((gl_clients *)self, NULL);
    PyObject *iterator = copy ? PyObject_GetIter(copy) : NULL;
    Py_XDECREF(copy);
    return iterator;
}

/* Clients(loop, others) */
static PyObject *
clients_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"loop", "others", NULL};
    PyObject *loop, *others;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!O:Clients", names, G.loop_type, &loop,
                                     &others))
        return NULL;
    gl_clients *set = (gl_clients *)type->tp_alloc(type, 0);
    if (set != NULL) {
        set->others = Py_NewRef(others);
        set->loop = (gl_loop *)Py_NewRef(loop);
#ifdef GL_FREE_THREADED
        gl_home_set(&set->home, Py_NewRef(loop));
#endif
    }
    return (PyObject *)set;
}

static int
clients_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((gl_clients *)self)->others);
    Py_VISIT(((gl_clients *)self)->loop);
#ifdef GL_FREE_THREADED
    Py_VISIT(((gl_clients *)self)->home.loop);
#endif
    return 0;
}

static void
clients_dealloc(PyObject *self)
{
    gl_clients *set = (gl_clients *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    while (set->len > 0)
        transport_leave_clients(set->item[0]);
    Py_DECREF(set->others);
    Py_DECREF(set->loop);
#ifdef GL_FREE_THREADED
    Py_CLEAR(set->home.loop);
#endif
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef clients_methods[] = {
    {"add", GL_ONEARG(clients_add), NULL},
    {"discard", GL_ONEARG(clients_discard), NULL},
    {"copy", GL_NOARGS(clients_copy), PyDoc_STR("copy($self)\n--\n\nReturn a set.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot clients_slots[] = {
    {Py_tp_doc, PyDoc_STR("The connections of a server, which it does not keep alive.")},
    {Py_tp_new, clients_new},
    {Py_tp_iter, clients_iter},
    {Py_sq_length, clients_length},
    {Py_sq_contains, clients_contains},
    {Py_tp_traverse, clients_traverse},
    {Py_tp_dealloc, clients_dealloc},
    {Py_tp_methods, clients_methods},
    {0, NULL},
};

static PyType_Spec clients_spec = {
    .name = "goloop._core.Clients",
    .basicsize = sizeof(gl_clients),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = clients_slots,
};

GL_PRIVATE int
gl_clients_init_type(PyObject *module)
{
    return gl_type_make(&G.clients_type, module, &clients_spec, NULL) < 0
               ? -1
               : GL_GUARD_TYPE(G.clients_type, gl_clients, home, NULL, GL_GUARD_ENDS);
}
