/*
 * args.h: parses the arguments of functions that asyncio defines in Python, so that each can be
 * passed by position or by name.
 *
 *     static const gl_params call_later_params =
 *         GL_PARAMS("BaseEventLoop.call_later", 2, 2, true, GL_NAME(delay), GL_NAME(callback));
 *
 *     PyObject *value[2];
 *     if (gl_args(&call_later_params, self, args, nargs, kwnames, value) < 0)
 *         return NULL;
 *
 * A call with wrong arguments raises the error that the running CPython raises for the same call of
 * asyncio's method.  The values are borrowed from the call; a missing one is NULL.
 */
#pragma once

#include "support/support.h"

/* The maximum number of named parameters of a function. */
#define GL_MAX_PARAMS 6

/* The parameters of one function. */
typedef struct gl_params {
    const char *function; /* asyncio's name of it, with or without its class, for messages */
    uint8_t required;     /* number of required parameters, which are the first */
    uint8_t positional;   /* number of parameters that may be passed by position */
    bool rest;            /* *args follow the positional parameters */
    uint8_t count;
    uint16_t name[GL_MAX_PARAMS]; /* GL_NAME of each */
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

/* The slow path of gl_args(): stores borrowed arguments in value[0 .. count), NULL for missing
 * ones.  -1 with the TypeError that asyncio's own method would raise. */
GL_PRIVATE int gl_args_named(const gl_params *p, void *self, PyObject *const *args,
                             Py_ssize_t nargs, PyObject *kwnames, PyObject **value);

/* Stores the arguments of a METH_FASTCALL | METH_KEYWORDS function in value[0 .. count), borrowed,
 * NULL for missing ones.  Arguments of *args are not stored: they begin at args[positional].
 * Returns 0, or -1 with the TypeError of a wrong call. */
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

/* Returns the argument, borrowed, of a function whose only parameter is required; NULL with
 * TypeError. */
static inline PyObject *
gl_arg(const gl_params *p, void *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *value;
    if (gl_args(p, self, args, nargs, kwnames, &value) < 0)
        return NULL;
    return value;
}

/* Defines the function `checked`, for GL_FASTKW, of a method without arguments: it calls f(self,
 * NULL), and raises asyncio's TypeError for a call with arguments.  With METH_NOARGS CPython would
 * check the arguments itself, with another message. */
#define GL_TAKES_NONE(checked, f, name)                                                            \
    static inline PyObject *checked(void *self, PyObject *const *args, Py_ssize_t nargs,           \
                                    PyObject *kwnames)                                             \
    {                                                                                              \
        static const gl_params params = {name, 0, 0, false, 0, {0}};                               \
        if (gl_args(&params, self, args, nargs, kwnames, NULL) < 0)                                \
            return NULL;                                                                           \
        return f(self, NULL);                                                                      \
    }

/* Converts an int, or the result of an object's fileno(), to *fd, limited to the range of a long.
 * The number need not be a valid fd (-1 for a closed socket).  Returns false with ValueError if the
 * object has no usable fileno(), or with the exception of fileno(). */
GL_PRIVATE bool gl_fd_number(PyObject *o, long *fd);
/* Returns the fd of an int or of an object with fileno(), like asyncio's selectors.  -1 with
 * ValueError for a negative number or a wrong object, OverflowError for a number that exceeds an
 * int, or the exception of fileno(). */
GL_PRIVATE int gl_fd_from_object(PyObject *o);
