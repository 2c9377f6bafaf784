/*
 * call_soon.c: call_soon, call_soon_threadsafe, call_later, call_at and time of a loop.
 *
 * call_soon_threadsafe is for any thread, the others for the loop's own.
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

static int
debug_checks(gl_loop *self, PyObject *callback, const char *name, bool thread)
{
    if (thread && gl_call_method((PyObject *)self, G.s__check_thread, NULL) < 0)
        return -1;
    /* A task's step is no coroutine function, and most of what is scheduled. */
    if ((PyObject *)Py_TYPE(callback) == G.asyncio.step)
        return 0;
    return gl_drop_result(
        PyObject_CallMethod((PyObject *)self, GL_METHOD(_check_callback), "Os", callback, name));
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
    if (gl_ready_add(self, h) < 0) {
        Py_DECREF(h);
        return NULL;
    }
    if (!self->running)
        gl_handle_track(h);
    return Py_NewRef(h);
}

#ifdef GL_FREE_THREADED
/* From a thread that may not have the loop's lock. */
static PyObject *
post_handle(gl_loop *self, PyObject *h)
{
    if (gl_inbox_post(self, h) < 0)
        Py_CLEAR(h);
    return h;
}
#endif

static inline PyObject *
schedule(gl_loop *self, const gl_params *params, const char *name, bool thread,
         PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value[2];
    if (gl_args(params, self, args, nargs, kwnames, value) < 0)
        return NULL;
#ifdef GL_FREE_THREADED
    PyObject *(*const push)(gl_loop *, PyObject *) = thread ? push_handle : post_handle;
#else
    PyObject *(*const push)(gl_loop *, PyObject *) = push_handle;
#endif
    PyObject *callback = value[0];
    PyObject *context = value[1];
    PyObject *const *rest = args + 1;
    Py_ssize_t nrest = nargs > 1 ? nargs - 1 : 0;
    if (GL_READ(self->closed) || GL_READ(self->shared) == NULL || gl_loop_is_foreign(self)) {
        gl_loop_check_usable(self);
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
    if (!GL_READ(self->debug) || debug_checks(self, callback, name, thread) == 0)
        h = thread ? gl_handle_new(self, callback, rest, nrest, context)
                   : gl_threadsafe_handle_new(self, callback, rest, nrest, context);
    if (wakeup != NULL) {
        Py_DECREF(wakeup);
        Py_XDECREF(context);
    }
    return h ? push(self, h) : NULL;
}

/* Making a handle runs no Python but in debug mode and in wrong calls: the lock is held briefly. */
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

static PyObject *
loop_call_soon(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    BRIEFLY(self);
    return schedule(self, &call_soon_params, "call_soon", true, args, nargs, kwnames);
}

static PyObject *
loop_call_soon_threadsafe(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *h =
        schedule(self, &threadsafe_params, "call_soon_threadsafe", false, args, nargs, kwnames);
#ifndef GL_FREE_THREADED
    if (h != NULL)
        self->counts.threadsafe_calls++;
    gl_wake(self);
#endif
    return h;
}

static inline double
loop_now(void)
{
    return (double)gl_monotonic_ns() / 1e9;
}

static PyObject *
loop_time(gl_loop *Py_UNUSED(self), PyObject *Py_UNUSED(ignored))
{
    return PyFloat_FromDouble(loop_now());
}

/* The first nanosecond at which time() is not before `when`, which is not NaN: both are rounded. */
static int64_t
deadline_of(double when)
{
    double ns = when * 1e9;
    if (!(fabs(ns) < 9.2e18))
        return ns > 0 ? GL_DEADLINE_NONE - 1 : INT64_MIN / 2;
    int64_t at = (int64_t)ns; /* rounded down, or to zero, which is in the past */
    for (; (double)at / 1e9 < when; at++)
        ;
    return at;
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
    if (gl_loop_check_usable(self) < 0 ||
        (self->debug && debug_checks(self, callback, "call_at", true) < 0))
        return NULL;
    PyObject *h =
        gl_timer_handle_new(self, when, deadline_of(seconds), callback, args, nargs, context);
    if (h != NULL && gl_timers_arm(self, (gl_timer_handle *)h) < 0)
        Py_CLEAR(h);
    return h;
}

static inline PyObject *
call_timer(gl_loop *self, const gl_params *params, bool relative, PyObject *const *args,
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
    PyObject *h = arm(self, when, seconds, value[1], args + 2, nargs > 2 ? nargs - 2 : 0, value[2]);
    Py_DECREF(when);
    return h;
}

static PyObject *
loop_call_later(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    BRIEFLY(self);
    if (gl_loop_has_own(self, GL_OWN_CALL_AT))
        return gl_call_python((PyObject *)self, G.s__call_later, args, nargs, kwnames);
    return call_timer(self, &call_later_params, true, args, nargs, kwnames);
}

static PyObject *
loop_call_at(gl_loop *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    BRIEFLY(self);
    return call_timer(self, &call_at_params, false, args, nargs, kwnames);
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
