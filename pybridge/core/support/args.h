/*
 * args.h: the arguments of the functions that asyncio has in Python, where they can be given
 * by position or by name.
 *
 *     static const gl_params call_later_params =
 *         GL_PARAMS("BaseEventLoop.call_later", 2, 2, true, GL_NAME(delay), GL_NAME(callback));
 *
 *     PyObject *value[2];
 *     if (gl_args(&call_later_params, self, args, nargs, kwnames, value) < 0)
 *         return NULL;
 *
 * A call with wrong arguments raises what the running CPython says of such a call of asyncio's
 * method of that name.  The values are borrowed from the call; one that is not given is NULL.
 */
#pragma once

#include "support/support.h"

#define GL_PARAMS_MAX 6

typedef struct gl_params {
    const char *function; /* its qualified name in asyncio, for messages */
    uint8_t required;     /* so many of the first must be given */
    uint8_t positional;   /* so many of the first may be given by position */
    bool rest;            /* *args follow these */
    uint8_t count;
    uint16_t name[GL_PARAMS_MAX]; /* GL_NAME of each */
} gl_params;

/* A name of GL_METHODS or GL_WORDS, as a constant. */
#define GL_NAME(x) ((uint16_t)offsetof(struct gl_globals, s_##x))
#define GL_PARAMS(function, required, positional, rest, ...)                                       \
    {                                                                                              \
        function, required, positional, rest,                                                      \
            sizeof((uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t),                                  \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

/* What gl_args leaves to it: names, and everything that is wrong. */
GL_PRIVATE int gl_args_named(const gl_params *p, void *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames, PyObject **value);

/* The arguments of a METH_FASTCALL | METH_KEYWORDS function.  -1 with TypeError. */
static inline int
gl_args(const gl_params *p, void *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames,
        PyObject **value)
{
    if (kwnames != NULL || nargs < p->required || (nargs > p->positional && !p->rest))
        return gl_args_named(p, self, args, nargs, kwnames, value);
    for (int i = 0; i < p->count; i++)
        value[i] = i < p->positional && i < nargs ? args[i] : NULL;
    return 0;
}

/* The one argument of a function that takes just one; NULL with TypeError. */
static inline PyObject *
gl_arg(const gl_params *p, void *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value;
    return gl_args(p, self, args, nargs, kwnames, &value) < 0 ? NULL : value;
}

/* For GL_FASTKW: the method of that name, which f is and takes no arguments.  Under METH_NOARGS
 * CPython would look at the arguments, and have other words for wrong ones. */
#define GL_TAKES_NONE(checked, f, name)                                                            \
    static inline PyObject *checked(void *self, PyObject *const *args, Py_ssize_t nargs,           \
                                    PyObject *kwnames)                                             \
    {                                                                                              \
        static const gl_params params = {name, 0, 0, false, 0, {0}};                               \
        return gl_args(&params, self, args, nargs, kwnames, NULL) < 0 ? NULL : f(self, NULL);      \
    }

/* The number that an int is or that an object's fileno() gives, which may be no fd's
 * (a closed socket says -1); false with ValueError. */
GL_PRIVATE bool gl_fd_number(PyObject *o, long *fd);
/* The fd of an int or of an object with fileno(), as asyncio's selectors find it;
 * -1 with ValueError. */
GL_PRIVATE int gl_fd_from_object(PyObject *o);
