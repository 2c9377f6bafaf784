/*
 * call_soon.c: call_soon, call_soon_threadsafe, call_later, call_at and time of a loop.
 *
 * call_soon_threadsafe is for any thread, the others for the loop's own.
 */
#include "loop/private.h"

#include <math.h>

/* The `context` among keyword arguments; *callback too where it is given by name.
 * -1 with TypeError for any other name. */
static int
parse_kwnames(const char *name, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
              PyObject **context, PyObject **callback, PyObject **first, const char *first_name)
{
    Py_ssize_t n = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *key = PyTuple_GET_ITEM(kwnames, i);
        PyObject *value = args[nargs + i];
        if (key == G.s_context || PyUnicode_CompareWithASCIIString(key, "context") == 0) {
            *context = value;
        } else if (PyUnicode_CompareWithASCIIString(key, "callback") == 0 &&
                   *callback == NULL) {
            *callback = value;
        } else if (first && *first == NULL &&
                   PyUnicode_CompareWithASCIIString(key, first_name) == 0) {
            *first = value;
        } else {
            PyErr_Format(PyExc_TypeError, "%s() got an unexpected keyword argument '%U'", name,
                         key);
            return -1;
        }
    }
    return 0;
}

static int
debug_checks(gl_loop *self, PyObject *callback, const char *name, bool thread)
{
    PyObject *r;
    if (thread) {
        r = PyObject_CallMethodNoArgs((PyObject *)self, G.s__check_thread);
        if (r == NULL)
            return -1;
        Py_DECREF(r);
    }
    r = PyObject_CallMethod((PyObject *)self, "_check_callback", "Os", callback, name);
    Py_XDECREF(r);
    return r ? 0 : -1;
}

/* Puts a fresh handle (stolen) on the queue and gives it out.  What was run since the
 * loop was checked (debug mode's checks, the collector) may have closed it: then the
 * push raises.  While the loop does not run it can become garbage together with a handle
 * that the caller keeps, so the collector has to know the handle until it shows, at the
 * next push, that nobody kept it. */
static inline PyObject *
push_handle(gl_loop *self, PyObject *h)
{
    if (!self->running)
        gl_ready_untrack_last(&self->ready);
    if (gl_ready_push(&self->ready, h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    if (!self->running)
        PyObject_GC_Track(h);
    return Py_NewRef(h);
}

static inline PyObject *
schedule(gl_loop *self, const char *name, bool thread, PyObject *const *args, Py_ssize_t nargs,
         PyObject *kwnames)
{
    if (self->closed || self->shared == NULL || gl_loop_is_foreign(self)) {
        gl_loop_check_usable(self);
        return NULL;
    }
    PyObject *context = NULL, *callback = nargs ? args[0] : NULL;
    PyObject *const *rest = args + 1;
    Py_ssize_t nrest = nargs - 1;
    if (kwnames) {
        if (parse_kwnames(name, args, nargs, kwnames, &context, &callback, NULL, NULL) < 0)
            return NULL;
        if (nargs == 0)
            nrest = 0;
    }
    if (callback == NULL) {
        PyErr_Format(PyExc_TypeError,
                     "%s() missing 1 required positional argument: 'callback'", name);
        return NULL;
    }
    /* asyncio's own methods, called unbound on a future of ours, hand out a waiting
     * task as it is stored (future.c). */
    PyObject *wakeup = NULL;
    if (gl_is_task(callback) && nrest == 1 && gl_awaits(callback, rest[0])) {
        wakeup = gl_wakeup_of(callback, &context);
        if (wakeup == NULL)
            return NULL;
        callback = wakeup;
    }
    PyObject *h = NULL;
    if (!self->debug || debug_checks(self, callback, name, thread) == 0)
        h = thread ? gl_handle_new(self, callback, rest, nrest, context)
                   : gl_threadsafe_handle_new(self, callback, rest, nrest, context);
    if (wakeup != NULL) {
        Py_DECREF(wakeup);
        Py_XDECREF(context);
    }
    return h ? push_handle(self, h) : NULL;
}

GL_PRIVATE PyObject *
loop_call_soon(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return schedule(self, "call_soon", true, args, nargs, kwnames);
}

GL_PRIVATE PyObject *
loop_call_soon_threadsafe(gl_loop *self, PyObject *const *args, Py_ssize_t nargs,
                          PyObject *kwnames)
{
    PyObject *h = schedule(self, "call_soon_threadsafe", false, args, nargs, kwnames);
    if (h && self->sleeping)
        gl_wake(self);
    return h;
}

static inline double
loop_now(void)
{
    return (double)gl_monotonic_ns() / 1e9;
}

GL_PRIVATE PyObject *
loop_time(gl_loop *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    return PyFloat_FromDouble(loop_now());
}

/* The first nanosecond that is not before `when`, which is not NaN. */
static int64_t
deadline_of(double when)
{
    double ns = ceil(when * 1e9);
    if (!(ns > -9.2e18))
        return INT64_MIN / 2;
    if (ns > 9.2e18)
        return GL_DEADLINE_NONE - 1;
    return (int64_t)ns;
}

/* `first` as the time to run at: an object (owned), kept as it is for when(), and in
 * seconds.  NULL with an exception; for NaN too, which no order of timers has a place for. */
static PyObject *
convert_when(bool relative, PyObject *first, double *seconds)
{
    PyObject *when;
    if (!relative) {
        when = Py_NewRef(first);
        *seconds = PyFloat_AsDouble(first);
    } else if (PyFloat_CheckExact(first)) {
        *seconds = loop_now() + PyFloat_AS_DOUBLE(first);
        when = PyFloat_FromDouble(*seconds);
    } else {
        PyObject *now = PyFloat_FromDouble(loop_now());
        when = now ? PyNumber_Add(now, first) : NULL;
        Py_XDECREF(now);
        *seconds = when ? PyFloat_AsDouble(when) : -1.0;
    }
    if (when == NULL || (*seconds == -1.0 && PyErr_Occurred())) {
        Py_XDECREF(when);
        return NULL;
    }
    if (isnan(*seconds)) {
        Py_DECREF(when);
        PyErr_Format(PyExc_ValueError, "Invalid %s: NaN (not a number)",
                     relative ? "delay" : "when");
        return NULL;
    }
    return when;
}

/* Arms a timer; gl_timers_arm() looks once more whether the loop is open. */
static PyObject *
arm(gl_loop *self, PyObject *when, double seconds, PyObject *callback, PyObject *const *args,
    Py_ssize_t nargs, PyObject *context)
{
    if (gl_loop_check_usable(self) < 0)
        return NULL;
    if (self->debug && debug_checks(self, callback, "call_at", true) < 0)
        return NULL;
    PyObject *h = gl_timer_handle_new(self, when, deadline_of(seconds), callback, args, nargs,
                                      context);
    if (h == NULL)
        return NULL;
    if (gl_timers_arm(self, (gl_timer_handle *)h) < 0)
        Py_CLEAR(h);
    return h;
}

static PyObject *
loop_call_timer(gl_loop *self, bool relative, PyObject *const *args, Py_ssize_t nargs,
                PyObject *kwnames)
{
    const char *name = relative ? "call_later" : "call_at";
    const char *first_name = relative ? "delay" : "when";
    PyObject *context = NULL;
    PyObject *first = nargs > 0 ? args[0] : NULL, *callback = nargs > 1 ? args[1] : NULL;
    if (kwnames && parse_kwnames(name, args, nargs, kwnames, &context, &callback, &first,
                                 first_name) < 0)
        return NULL;
    if (first == NULL || callback == NULL) {
        PyErr_Format(PyExc_TypeError, "%s() missing required arguments: '%s' and 'callback'",
                     name, first_name);
        return NULL;
    }
    if (first == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        relative ? "delay must not be None" : "when cannot be None");
        return NULL;
    }
    double seconds;
    PyObject *when = convert_when(relative, first, &seconds);
    if (when == NULL)
        return NULL;
    PyObject *h = arm(self, when, seconds, callback, args + 2, nargs > 2 ? nargs - 2 : 0, context);
    Py_DECREF(when);
    return h;
}

GL_PRIVATE PyObject *
loop_call_later(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return loop_call_timer(self, true, args, nargs, kwnames);
}

GL_PRIVATE PyObject *
loop_call_at(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    return loop_call_timer(self, false, args, nargs, kwnames);
}

GL_PRIVATE PyObject *
loop_timer_handle_cancelled(gl_loop *Py_UNUSED(self), PyObject *Py_UNUSED(handle))
{
    Py_RETURN_NONE; /* asyncio counts them to rebuild its heap; the wheel needs no count */
}
