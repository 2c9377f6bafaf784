/*
 * native_loop.c: may an entry go on this loop's ready queue directly?
 *
 * asyncio schedules by calling loop.call_soon, and asks loop.is_running before it starts a
 * task eagerly.  Where both are our own methods, and nothing could tell the difference,
 * Tasks and Futures put their entry on the ready queue themselves.  Everything else takes the general path, which is asyncio's: a foreign
 * loop, a subclass or an instance with another one of them, debug mode (whose checks
 * and tracebacks call_soon makes), a program that has replaced asyncio.Handle._run (which runs
 * handles only), and a closed loop (whose error call_soon raises).
 *
 * The answer for a class is remembered together with the class's version tag, which
 * CPython changes whenever the class or one of its bases is changed.
 */
#include "state/private.h"

/* Is the class's method ours?  *own is ours, once it was looked up. */
static bool
native_method(PyTypeObject *type, PyObject *name, PyObject **own)
{
    PyObject *ours = GL_READ(*own);
    if (ours == NULL) { /* two threads may both look it up, and find the same */
        ours = PyObject_GetAttr((PyObject *)G.loop_type, name);
        GL_WRITE(*own, ours);
    }
    PyObject *found = ours ? PyObject_GetAttr((PyObject *)type, name) : NULL;
    if (found == NULL) {
        PyErr_Clear();
        return false;
    }
    Py_DECREF(found);
    return found == ours;
}

/* Does the class leave both methods alone?  Remembers a yes.  Seldom: apart from what asks. */
static __attribute__((noinline)) bool
native_class_check(PyTypeObject *type)
{
    if (!PyType_IsSubtype(type, G.loop_type) || type->tp_getattro != PyObject_GenericGetAttr ||
        !native_method(type, G.s_call_soon, &G.native_class.call_soon) ||
        !native_method(type, G.s_is_running, &G.native_class.is_running))
        return false;
#ifndef GL_FREE_THREADED
    G.native_class.type = type;
    G.native_class.tag = type->tp_version_tag;
#endif
    return true;
}

GL_PRIVATE_INLINE gl_loop *
gl_native_loop(PyObject *loop)
{
    if (loop == NULL) /* a future that somebody is initialising anew */
        return NULL;
    PyTypeObject *type = Py_TYPE(loop);
#ifdef GL_FREE_THREADED /* each loop remembers for itself */
    gl_loop *self = gl_as_loop(loop);
    if (self == NULL)
        return NULL;
    if (type->tp_version_tag == 0 || type->tp_version_tag != self->native_tag) {
        if (!native_class_check(type))
            return NULL;
        self->native_tag = type->tp_version_tag;
    }
#else
    if (type != G.native_class.type || type->tp_version_tag != G.native_class.tag ||
        G.native_class.tag == 0) {
        if (!native_class_check(type))
            return NULL;
    }
    gl_loop *self = (gl_loop *)loop;
#endif
    if (self->debug || gl_handles_hooked() || self->closed || self->replaced || self->shared == NULL ||
        gl_loop_is_foreign(self))
        return NULL;
    return self;
}

/* The caller owns what it passes but for the loop. */
GL_PRIVATE int
gl_soon(PyObject *loop, PyObject *callable, PyObject *arg, PyObject *context)
{
    gl_loop *native = gl_native_loop(loop);
    if (native) {
        GL_GUARD(native);
        Py_INCREF(native); /* making a handle may run the collector */
        int r = push_new_handle(native, callable, arg, context);
        Py_DECREF(native);
        return r;
    }
    if (loop == NULL) {
        PyErr_SetString(PyExc_RuntimeError, "Future object is not initialized.");
        return -1;
    }
    /* An evil call_soon may drop what we were given. */
    PyObject *stack[4] = {Py_NewRef(loop), Py_NewRef(callable), NULL, NULL};
    size_t n = 2;
    if (arg)
        stack[n++] = Py_NewRef(arg);
    stack[n] = Py_NewRef(context);
    PyObject *handle = PyObject_VectorcallMethod(G.s_call_soon, stack,
                                                 n | PY_VECTORCALL_ARGUMENTS_OFFSET, G.kw_context);
    for (size_t i = 0; i <= n; i++)
        Py_DECREF(stack[i]);
    Py_XDECREF(handle);
    return handle ? 0 : -1;
}

GL_PRIVATE_INLINE int
gl_push_task(gl_loop *loop, PyObject *task)
{
    Py_INCREF(task);
    if (gl_ready_push(&loop->ready, task) < 0) {
        Py_DECREF(task);
        return -1;
    }
    return 0;
}
