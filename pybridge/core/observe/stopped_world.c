/*
 * stopped_world.c: reads the await chain of a coroutine of another thread, in CPython 3.13 without
 * the GIL.
 *
 * There the attributes of a coroutine and of a frame (cr_await, f_back, ...) read memory that the
 * thread of the coroutine changes and frees meanwhile, and a program that reads them often enough
 * crashes.  So goloop reads them while all other threads are stopped:
 *
 *     gl_visit_stopped_world -> all other threads stop -> first object: read -> they continue
 *
 * In the stopped world nothing may be allocated, no lock taken and no Python run.  Only memory is
 * read and references are counted; the Python objects are created afterwards.  A method that takes
 * the loop's lock is no alternative: it may have to wait when it allocates memory, and would get
 * the lock back only after the end of the callback whose coroutine it reads.
 *
 * A Python with a GIL does not need this file.  From 3.14 on the frames have another layout, and
 * the attributes are read as with a GIL; this is not tested, because goloop is not tested on such
 * a Python.
 */
#include "observe/observe.h"

#if GL_READS_STOPPED_WORLD

/* The maximum number of entries of a chain that is read. */
#define MAX_CHAIN 64

/* gi_frame_state of a generator that awaits an object, and the lowest state without a frame. */
#define STATE_AWAITING (-1)
#define STATE_COMPLETED 1

/* _PyInterpreterFrame of 3.13. */
typedef struct interpreter_frame {
    PyObject *code;
    struct interpreter_frame *previous;
    void *function, *globals, *builtins, *locals, *object, *instruction;
    int stack_top;
    uint16_t return_offset;
    char owner;
    PyObject *local[1];
} interpreter_frame;

/* An entry of an await chain. */
typedef struct {
    PyObject *name; /* the coroutine's name, owned; NULL: the name of the code */
    PyObject *code; /* owned; NULL: no frame */
    int line;
} chain_frame;

/* The request of read_chain() and its result. */
typedef struct {
    PyObject *coroutine; /* the first object of the chain, borrowed */
    PyObject *rest;      /* an awaitable of another class, at which the chain ends; owned */
    int n;
    chain_frame frame[MAX_CHAIN];
} await_chain;

/* ---- while the world is stopped ------------------------------------------------------------- */

/* Returns true for a coroutine, a generator or an asynchronous generator, which have a frame. */
static inline bool
is_generator(PyObject *o)
{
    return PyCoro_CheckExact(o) || PyGen_CheckExact(o) || PyAsyncGen_CheckExact(o);
}

/* Returns the frame of a generator; NULL if it has ended. */
static interpreter_frame *
generator_frame(PyObject *generator)
{
    PyGenObject *g = (PyGenObject *)generator;
    return g->gi_frame_state < STATE_COMPLETED ? (interpreter_frame *)g->gi_iframe : NULL;
}

/* Returns the object that a generator awaits, borrowed; NULL: it does not await. */
static PyObject *
awaited_object(PyObject *generator)
{
    if (((PyGenObject *)generator)->gi_frame_state != STATE_AWAITING)
        return NULL;
    interpreter_frame *f = generator_frame(generator);
    return f->local[f->stack_top - 1];
}

/* Adds an entry to the chain, with references to `name` and to the frame's code; `frame` is NULL
 * for a finished generator. */
static void
append_frame(await_chain *all, PyObject *name, interpreter_frame *frame)
{
    chain_frame *to = &all->frame[all->n++];
    *to = (chain_frame){Py_XNewRef(name), NULL, 0};
    if (frame == NULL)
        return;
    to->code = PyUnstable_InterpreterFrame_GetCode((struct _PyInterpreterFrame *)frame);
    to->line = PyUnstable_InterpreterFrame_GetLine((struct _PyInterpreterFrame *)frame);
}

/* Returns true if the object's class has one of the names, a list that ends with NULL.  For classes
 * that CPython does not export. */
static bool
is_named(PyObject *o, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(Py_TYPE(o)->tp_name, *names) == 0)
            return true;
    return false;
}

/* Returns true if an object is a step of an asynchronous generator or a wrapper of a coroutine. */
static bool
is_generator_step(PyObject *o)
{
    static const char *const names[] = {"async_generator_asend", "async_generator_athrow",
                                        "anext_awaitable", "coroutine_wrapper", NULL};
    return is_named(o, names);
}

/* Returns true if an object is the iterator of `await future`, which does not appear in the
 * chain. */
static bool
is_future_iterator(PyObject *o)
{
    static const char *const names[] = {"goloop._core.FutureIter", "_asyncio.FutureIter", NULL};
    return is_named(o, names);
}

/* A visitproc that finds the generator of a step, or the next step: stores it, borrowed, in *found,
 * and ends the visit with 1. */
static int
find_generator(PyObject *o, void *found)
{
    if (!is_generator(o) && !is_generator_step(o))
        return 0;
    *(PyObject **)found = o;
    return 1;
}

/* A gcvisitobjects_t that reads the chain, at most MAX_CHAIN entries, at the first object, and
 * returns 0, which ends the visit.  The references of the await_chain belong to the caller. */
static int
read_chain(PyObject *Py_UNUSED(first), void *arg)
{
    await_chain *all = arg;
    PyObject *o = all->coroutine;
    while (o != NULL && all->n < MAX_CHAIN) {
        PyObject *next = NULL;
        if (is_generator(o)) {
            append_frame(all, ((PyGenObject *)o)->gi_qualname, generator_frame(o));
            next = awaited_object(o);
        } else if (is_generator_step(o)) { /* a step has no attribute with its generator */
            (void)Py_TYPE(o)->tp_traverse(o, find_generator, &next);
        } else if (!is_future_iterator(o)) {
            all->rest = Py_NewRef(o);
        }
        o = next;
    }
    return 0;
}

/* ---- afterwards ------------------------------------------------------------------------------ */

/* Returns an entry of the chain as a new tuple (name, file, line). */
static PyObject *
frame_tuple(const chain_frame *f)
{
    PyCodeObject *code = (PyCodeObject *)f->code;
    PyObject *name = f->name;
    if (name == NULL && code != NULL)
        name = code->co_qualname;
    if (name == NULL)
        return Py_BuildValue("ssi", "", "", 0);
    if (code == NULL)
        return Py_BuildValue("Osi", name, "", 0);
    return Py_BuildValue("OOi", name, code->co_filename, Py_MAX(f->line, 0));
}

/* Returns a new list of the chain's entries, and drops the references of the entries, also on
 * failure. */
static PyObject *
frame_list_from_chain(await_chain *all)
{
    PyObject *list = PyList_New(0);
    for (int i = 0; i < all->n; i++) {
        PyObject *entry = list ? frame_tuple(&all->frame[i]) : NULL;
        if (list != NULL && (entry == NULL || PyList_Append(list, entry) < 0))
            Py_CLEAR(list);
        Py_XDECREF(entry);
    }
    for (int i = 0; i < all->n; i++) {
        Py_XDECREF(all->frame[i].name);
        Py_XDECREF(all->frame[i].code);
    }
    return list;
}

/* _await_frames(coroutine): returns a tuple: the list of the await chain's entries, at most
 * MAX_CHAIN, and the awaitable of another class at its end or None.  Stops all other threads
 * meanwhile; when Python ends and the world can't be stopped, the list is empty. */
static PyObject *
await_frames(PyObject *Py_UNUSED(module), PyObject *coroutine)
{
    await_chain all = {.coroutine = coroutine};
    gl_visit_stopped_world(read_chain, &all);
    PyObject *list = frame_list_from_chain(&all);
    PyObject *rest = all.rest ? all.rest : Py_None;
    PyObject *result = NULL;
    if (list != NULL)
        result = PyTuple_Pack(2, list, rest);
    Py_XDECREF(list);
    Py_XDECREF(all.rest);
    return result;
}

/* _guarded_attribute(loop, future, name): returns an attribute of the future, read with the loop's
 * lock (without a lock if `loop` is not a goloop loop), for futures and tasks of asyncio, which
 * have no lock.  No Python runs, so the lock is not released meanwhile. */
static PyObject *
read_guarded_attribute(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3)
        return PyErr_Format(PyExc_TypeError,
                            "_guarded_attribute() takes a loop, a future and a name");
    GL_GUARD(gl_as_loop(args[0]));
    return PyObject_GetAttr(args[1], args[2]);
}

static PyMethodDef stopped_world_functions[] = {
    {"_guarded_attribute", GL_FAST(read_guarded_attribute),
     PyDoc_STR("Read a future's attribute while the loop's thread does not run Python.")},
    {"_await_frames", await_frames, METH_O,
     PyDoc_STR(
         "Return the coroutines that a coroutine awaits, innermost last, and the awaitable of "
         "another class at which the chain ends, or None.")},
    {NULL, NULL, 0, NULL},
};

#endif /* GL_READS_STOPPED_WORLD */

GL_PRIVATE int
gl_stopped_world_init(PyObject *module)
{
#if GL_READS_STOPPED_WORLD
    return PyModule_AddFunctions(module, stopped_world_functions);
#else
    (void)module;
    return 0;
#endif
}
