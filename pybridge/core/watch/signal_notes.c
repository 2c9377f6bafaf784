/*
 * signal_notes.c: signals on their way from CPython's wakeup fd to the loop's handlers.
 *
 * A SignalNotes is two things to goloop/_internal/loop/signals.py.  It is the Python-level handler of
 * each signal that has a handler of the loop: called, it notes the kind, one bit.  And
 * its drain() is the reader of the wakeup pipe, which schedules the handler of each number
 * that it reads.  Both are C so that no bytecode of theirs can be interrupted: a
 * KeyboardInterrupt (SIGINT's usual handler, which CPython runs between two bytecodes)
 * comes before drain() has read anything or after all is scheduled.
 *
 *     signal ──► C handler of CPython ──► number into the pipe ──► drain ──► ready queue
 *                       └──► later, in the main thread: the kind's bit        ▲
 *                                         └── pipe was full: its number is lost ─┘
 *
 * A kind that is delivered once too often does less harm than one that is lost.
 */
#include "watch/private.h"

#include <errno.h>
#include <unistd.h>

/* The least that a pipe holds: whoever reads less has not found it full. */
#define NOTES_READ 4096

typedef struct {
    PyObject_HEAD
    uint64_t kinds;           /* bit n - 1: signal n was seen by the Python-level handler */
    uint64_t read;            /* while `full`: the kinds that drain() has delivered */
    bool full;                /* the pipe was; noted kinds are still to be compared */
} gl_signal_notes;

static inline uint64_t
signal_bit(unsigned int number)
{
    return number >= 1 && number <= 64 ? (uint64_t)1 << (number - 1) : 0;
}

/* notes(signum, frame) */
static PyObject *
notes_call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *number, *frame;
    int overflow;
    if ((kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) ||
        !PyArg_UnpackTuple(args, "SignalNotes", 2, 2, &number, &frame)) {
        PyErr_SetString(PyExc_TypeError, "a signal handler takes a number and a frame");
        return NULL;
    }
    long n = PyLong_AsLongAndOverflow(number, &overflow);
    if (n == -1 && PyErr_Occurred())
        return NULL;
    if (n > 0)
        ((gl_signal_notes *)self)->kinds |= signal_bit((unsigned int)n);
    Py_RETURN_NONE;
}

/* What drain() is given: (loop, fd, handlers, remove). */
typedef struct {
    PyObject *all;
    gl_loop *loop;
    int fd;
    PyObject *handlers;       /* dict: number -> Handle */
    PyObject *remove;         /* called for a handler that was cancelled */
} drain_arguments;

static int
drain_parse(PyObject *arg, drain_arguments *d)
{
    d->all = arg;
    if (!PyTuple_Check(arg)) {
        PyErr_SetString(PyExc_TypeError, "drain() takes a tuple");
        return -1;
    }
    int parsed = PyArg_ParseTuple(arg, "O!iO!O:drain", G.loop_type, &d->loop, &d->fd,
                                  &PyDict_Type, &d->handlers, &d->remove);
    return parsed ? 0 : -1;
}

static int
notes_deliver(const drain_arguments *d, unsigned int number)
{
    PyObject *key = PyLong_FromUnsignedLong(number);
    if (key == NULL)
        return -1;
    PyObject *handle = PyDict_GetItemWithError(d->handlers, key);
    int rc = 0;
    if (handle == NULL) {
        rc = PyErr_Occurred() ? -1 : 0;
    } else if (!gl_is_handle(handle)) {
        PyErr_SetString(PyExc_TypeError, "a signal's handler must be a goloop Handle");
        rc = -1;
    } else if (gl_handle_is_cancelled(handle)) {
        rc = gl_call_soon(d->loop, d->remove, key, NULL);
    } else {
        rc = gl_loop_check_usable(d->loop);
        if (rc == 0 && (rc = gl_ready_push(&d->loop->ready, Py_NewRef(handle), 0)) < 0)
            Py_DECREF(handle);
    }
    Py_DECREF(key);
    return rc;
}

/* The numbers of a full pipe are not all.  The kinds are: but CPython runs the
 * Python-level handlers when it gets to it, so that is asked for first.  If one of them
 * raises, the rest is done when the loop runs again. */
static int
notes_deliver_lost(gl_signal_notes *self, const drain_arguments *d)
{
    if (PyErr_CheckSignals() < 0) {
        PyObject *exc = gl_take_exception();
        PyObject *again = PyObject_GetAttrString((PyObject *)self, "drain");
        if (again == NULL || gl_call_soon(d->loop, again, d->all, NULL) < 0)
            PyErr_WriteUnraisable((PyObject *)self);
        Py_XDECREF(again);
        gl_restore_exception(exc);
        return -1;
    }
    uint64_t lost = self->kinds & ~self->read;
    self->kinds = self->read = 0;
    self->full = false;
    int rc = 0;
    for (unsigned int number = 1; number <= 64; number++) {
        if ((lost & signal_bit(number)) && notes_deliver(d, number) < 0) {
            self->kinds |= lost & ~(signal_bit(number) - 1); /* out of memory */
            self->full = true;
            rc = -1;
            break;
        }
    }
    return rc;
}

static PyObject *
notes_drain(gl_signal_notes *self, PyObject *arg)
{
    drain_arguments d;
    uint8_t numbers[NOTES_READ];
    if (drain_parse(arg, &d) < 0)
        return NULL;
    GL_GUARD(d.loop);
    size_t total = 0;
    for (;;) {
        ssize_t n = G.calls->read(d.fd, numbers, sizeof numbers);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        total += (size_t)n;
        for (ssize_t i = 0; i < n; i++) {
            if (notes_deliver(&d, numbers[i]) < 0) {
                for (; i < n; i++) /* out of memory: at least each kind, later */
                    self->kinds |= signal_bit(numbers[i]);
                self->full = true;
                return NULL;
            }
            self->read |= signal_bit(numbers[i]);
        }
        if ((size_t)n < sizeof numbers)
            break;
    }
    if (total >= NOTES_READ)
        self->full = true;
    if (self->full)
        return notes_deliver_lost(self, &d) < 0 ? NULL : Py_NewRef(Py_None);
    /* The Python-level handlers of what was read, SIGINT's as well, are due now: their
     * numbers will wake nobody any more, and perhaps no bytecode runs before the loop
     * sleeps. */
    self->kinds = 0;
    int rc = PyErr_CheckSignals();
    self->kinds &= ~self->read;
    self->read = 0;
    return gl_none_or_null(rc);
}

/* handle(loop, callback, *args): a Handle as call_soon makes it, scheduled by nobody. */
static PyObject *
notes_handle(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 2 || !gl_loop_check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "handle() takes a loop, a callback and its arguments");
        return NULL;
    }
    PyObject *h = gl_handle_new((gl_loop *)args[0], args[1], args + 2, nargs - 2, NULL);
    if (h != NULL)
        gl_handle_track(h);
    return h;
}

static void
notes_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef notes_methods[] = {
    {"drain", GL_ONEARG(notes_drain),
     PyDoc_STR("drain((loop, fd, handlers, remove)): schedules the handlers of what the pipe has.")},
    {"handle", GL_FAST(notes_handle) | METH_STATIC,
     PyDoc_STR("handle(loop, callback, *args): a Handle that nobody has scheduled.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot notes_slots[] = {
    {Py_tp_doc, PyDoc_STR("Remembers which signals came; a loop's signal handler.")},
    {Py_tp_dealloc, notes_dealloc},
    {Py_tp_call, notes_call},
    {Py_tp_methods, notes_methods},
    {0, NULL},
};

static PyType_Spec notes_spec = {
    .name = "goloop._core.SignalNotes",
    .basicsize = sizeof(gl_signal_notes),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = notes_slots,
};

GL_PRIVATE int
gl_signal_notes_init_type(PyObject *module)
{
    return gl_type_make(&G.signal_notes_type, module, &notes_spec, NULL);
}
