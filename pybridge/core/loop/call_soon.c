/*
 * call_soon.c: the loop's methods call_soon, call_soon_threadsafe, call_later, call_at and time.
 *
 * Any thread may call call_soon_threadsafe and time; only the loop's own thread may call the other
 * methods.
 */
#include "loop/private.h"

#include <math.h>

static const gl_params call_soon_params =
    GL_PARAMS("BaseEventLoop.call_soon", 1, 1, true, GL_NAME(callback), GL_NAME(context));
static const gl_params threadsafe_params = GL_PARAMS("BaseEventLoop.call_soon_threadsafe", 1, 1,
                                                     true, GL_NAME(callback), GL_NAME(context));
static const gl_params call_later_params = GL_PARAMS(
    "BaseEventLoop.call_later", 2, 2, true, GL_NAME(delay), GL_NAME(callback), GL_NAME(context));
static const gl_params call_at_params = GL_PARAMS(
    "BaseEventLoop.call_at", 2, 2, true, GL_NAME(when), GL_NAME(callback), GL_NAME(context));

/* Does asyncio's checks of debug mode: the calling thread (if `own_thread`) and the callback, for
 * the method `name`.  -1 with the exception. */
static int
debug_checks(gl_loop *self, PyObject *callback, const char *name, bool own_thread)
{
    if (own_thread && gl_call_method((PyObject *)self, G.s__check_thread, NULL) < 0)
        return -1;
    /* A task's step, the most frequent callback, is not a coroutine function. */
    if ((PyObject *)Py_TYPE(callback) == G.asyncio.step)
        return 0;
    return gl_drop_result(
        PyObject_CallMethod((PyObject *)self, GL_METHOD(_check_callback), "Os", callback, name));
}

/* Appends a new handle (stolen) to the queue, and returns a new reference to it.  Python code that
 * ran since the check of the loop (debug mode's checks, the garbage collector) may have closed the
 * loop: then the push raises, the handle is dropped, and the result is NULL.  A loop that does not
 * run can become garbage together with a handle to which the caller has a reference, so the handle
 * is tracked, and untracked at the next push if only the queue refers to it. */
static inline PyObject *
push_handle(gl_loop *self, PyObject *h)
{
    if (!self->running)
        gl_ready_untrack_last(&self->ready);
    if (gl_ready_add(self, h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    if (!self->running)
        gl_handle_track(h);
    return Py_NewRef(h);
}

#ifdef GL_FREE_THREADED
/* Posts a new handle (stolen), in a thread that need not have the loop's lock, and wakes the loop;
 * returns a new reference to the handle.  NULL with RuntimeError if the loop is closed; the handle
 * is then dropped. */
static PyObject *
post_handle(gl_loop *self, PyObject *h)
{
    if (gl_inbox_post(self, h) < 0)
        Py_CLEAR(h);
    return h;
}
#endif

/* Returns the type of a handle of call_soon_threadsafe(): a plain Handle before CPython 3.14, and
 * if asyncio's class has an unknown layout. */
static inline PyTypeObject *
threadsafe_handle_type(void)
{
    if (G.threadsafe_handle_type == NULL)
        return G.handle_type;
    return G.threadsafe_handle_type;
}

/* Does the work of call_soon, and of call_soon_threadsafe if `own_thread` is false: returns the new
 * handle.  NULL with RuntimeError if the loop can't be used, or as gl_handle_new(). */
static inline PyObject *
schedule(gl_loop *self, bool own_thread, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    const gl_params *params = own_thread ? &call_soon_params : &threadsafe_params;
    const char *name = own_thread ? "call_soon" : "call_soon_threadsafe";
    PyObject *value[2];
    if (gl_args(params, self, args, nargs, kwnames, value) < 0)
        return NULL;
    gl_call call = {value[0], args + 1, Py_MAX(nargs - 1, 0), value[1]};
    if (GL_READ(self->closed) || GL_READ(self->shared) == NULL || gl_loop_is_foreign(self)) {
        gl_loop_check_usable(self);
        return NULL;
    }
    /* asyncio's own methods, called unbound on a goloop future, pass a waiting task in its stored
     * form (future_callbacks.c) as the callback. */
    PyObject *wakeup = NULL;
    if (gl_is_task(call.callback) && call.nargs == 1 &&
        gl_task_awaits(call.callback, call.args[0])) {
        wakeup = gl_wakeup_with_context(call.callback, &call.context);
        if (wakeup == NULL)
            return NULL;
        call.callback = wakeup;
    }
    PyObject *h = NULL;
    if (!GL_READ(self->debug) || debug_checks(self, call.callback, name, own_thread) == 0)
        h = gl_handle_new(own_thread ? G.handle_type : threadsafe_handle_type(), self, &call);
#ifdef GL_FREE_THREADED
    if (h != NULL)
        h = own_thread ? push_handle(self, h) : post_handle(self, h);
#else
    if (h != NULL)
        h = push_handle(self, h);
#endif
    if (wakeup != NULL) {
        Py_DECREF(wakeup);
        Py_XDECREF(call.context);
    }
    return h;
}

/* Takes the loop's lock for a short time: creating a handle runs Python only in debug mode and in
 * wrong calls. */
#ifdef GL_FREE_THREADED
#define BRIEFLY(loop)                                                                              \
    GL_GUARD_LATER;                                                                                \
    if (GL_READ((loop)->debug))                                                                    \
        gl_guard_begin(&guard_here, loop);                                                         \
    else                                                                                           \
        gl_guard_begin_briefly(&guard_here, loop)
#else
#define BRIEFLY(loop) ((void)0)
#endif

/* loop.call_soon(callback, *args, context=None): appends a Handle to the ready queue and returns
 * it.  NULL as schedule(). */
static PyObject *
loop_call_soon(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    BRIEFLY(self);
    return schedule(self, true, args, nargs, kwnames);
}

/* loop.call_soon_threadsafe(callback, *args, context=None): schedules the call from any thread,
 * wakes the loop and returns the handle.  NULL as schedule(). */
static PyObject *
loop_call_soon_threadsafe(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *h = schedule(self, false, args, nargs, kwnames);
#ifndef GL_FREE_THREADED
    if (h != NULL)
        self->counts.threadsafe_calls++;
    gl_wake(self);
#endif
    return h;
}

/* Returns the loop's clock in seconds. */
static inline double
loop_now(void)
{
    return (double)gl_monotonic_ns() / 1e9;
}

/* loop.time(): the loop's clock in seconds, a float. */
static PyObject *
loop_time(gl_loop *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    return PyFloat_FromDouble(loop_now());
}

/* Returns the first nanosecond of the loop's clock at which time(), a rounded float, is not before
 * `when` (not NaN).  A time that exceeds 64 bits becomes the greatest deadline, or one in the
 * past. */
static int64_t
deadline_of(double when)
{
    double ns = when * 1e9;
    if (!(fabs(ns) < 9.2e18)) {
        if (ns > 0)
            return GL_DEADLINE_NONE - 1;
        return INT64_MIN / 2;
    }
    int64_t at = (int64_t)ns; /* rounded down, or to zero, which is in the past */
    while ((double)at / 1e9 < when)
        at++;
    return at;
}

/* Converts the first argument of call_later (`relative`) or call_at to the time at which the timer
 * is due: an object for when() (a new reference), and *seconds.  NULL with ValueError for NaN,
 * which cannot be ordered. */
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
        if (now == NULL)
            return NULL;
        when = PyNumber_Add(now, first);
        Py_DECREF(now);
        if (when == NULL)
            return NULL;
        *seconds = PyFloat_AsDouble(when);
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

/* Does the work of call_later (`relative`) and of call_at: arms a timer and returns its new
 * TimerHandle.  NULL with TypeError for None as the time. */
static inline PyObject *
schedule_timer(gl_loop *self, const gl_params *params, bool relative, PyObject *const *args,
               Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value[3];
    if (gl_args(params, self, args, nargs, kwnames, value) < 0)
        return NULL;
    if (value[0] == Py_None) {
        PyErr_SetString(PyExc_TypeError,
                        relative ? "delay must not be None" : "when cannot be None");
        return NULL;
    }
    double seconds;
    PyObject *when = convert_when(relative, value[0], &seconds);
    if (when == NULL)
        return NULL;
    const gl_call call = {value[1], args + 2, Py_MAX(nargs - 2, 0), value[2]};
    PyObject *h = NULL;
    if (gl_loop_check_usable(self) == 0 &&
        (!self->debug || debug_checks(self, call.callback, "call_at", true) == 0))
        h = gl_timers_arm(self, when, deadline_of(seconds), &call);
    Py_DECREF(when);
    return h;
}

/* loop.call_later(delay, callback, *args, context=None): arms a timer for `delay` seconds from now
 * and returns its TimerHandle.  Calls asyncio's method if a program has replaced the loop's
 * call_at(). */
static PyObject *
loop_call_later(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    BRIEFLY(self);
    if (gl_loop_has_own(self, GL_OWN_CALL_AT))
        return gl_call_python((PyObject *)self, G.s__call_later, args, nargs, kwnames);
    return schedule_timer(self, &call_later_params, true, args, nargs, kwnames);
}

/* loop.call_at(when, callback, *args, context=None): arms a timer for the loop time `when` in
 * seconds and returns its TimerHandle. */
static PyObject *
loop_call_at(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    BRIEFLY(self);
    return schedule_timer(self, &call_at_params, false, args, nargs, kwnames);
}

GL_TAKES_NONE(time_method, loop_time, "time")

static PyMethodDef call_soon_table[] = {
    {"call_soon", GL_FASTKW(loop_call_soon),
     PyDoc_STR("call_soon($self, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) in the next iteration; return a Handle.")},
    {"call_soon_threadsafe", GL_FASTKW(loop_call_soon_threadsafe),
     PyDoc_STR("call_soon_threadsafe($self, callback, *args, context=None)\n--\n\n"
               "Like call_soon(), from any thread.")},
    {"call_later", GL_FASTKW(loop_call_later),
     PyDoc_STR("call_later($self, delay, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) after delay seconds; return a TimerHandle.")},
    {"call_at", GL_FASTKW(loop_call_at),
     PyDoc_STR("call_at($self, when, callback, *args, context=None)\n--\n\n"
               "Call callback(*args) at loop time `when` (seconds); return a TimerHandle.")},
    {"time", GL_FASTKW(time_method),
     PyDoc_STR("time($self)\n--\n\nReturn the loop's clock in seconds (monotonic).")},
    {NULL, NULL, 0, NULL},
};
GL_PRIVATE PyMethodDef *const call_soon_methods = call_soon_table;
