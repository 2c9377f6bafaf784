/*
 * stopped.c: what a coroutine is doing, for another thread, in CPython 3.13 without the GIL.
 *
 * There the attributes of a coroutine and of a frame (cr_await, f_back, ...) read what the thread
 * that runs it changes and frees meanwhile, and a program that looks often enough crashes.  So
 * goloop looks while the world is stopped:
 *
 *     PyUnstable_GC_VisitObjects ── all other threads stop ── first object: look ── they go on
 *
 * In between, nothing may be allocated, no lock taken and no Python run: only memory is read, and
 * references are counted.  The Python objects are made afterwards.  A method that takes the loop's
 * lock could not look either: where it allocates it may wait, and then gets the lock back only when
 * the callback that it looks at has ended.
 *
 * A Python with a GIL needs none of this.  From 3.14 on the frames have another layout, and the
 * attributes are read as with a GIL; that is not tested, for want of such a Python.
 */
#include "observe/observe.h"

#if GL_READS_STOPPED_WORLD

#define CHAIN_MAX 64

/* gi_frame_state of a generator that waits for another; and the least of one without a frame. */
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

typedef struct {
    PyObject *name; /* owned: a coroutine's, or NULL for the code's */
    PyObject *code; /* owned; NULL: it has no frame */
    int line;
} chain_frame;

typedef struct {
    PyObject *coroutine; /* whose chain is wanted */
    PyObject *rest;      /* owned: an awaitable of another kind, at which the chain ends */
    int n;
    chain_frame frame[CHAIN_MAX];
} await_chain;

/* ---- while the world is stopped --------------------------------------------------------------- */

static inline bool
is_generator(PyObject *o)
{
    return PyCoro_CheckExact(o) || PyGen_CheckExact(o) || PyAsyncGen_CheckExact(o);
}

static interpreter_frame *
frame_of(PyObject *generator)
{
    PyGenObject *g = (PyGenObject *)generator;
    return g->gi_frame_state < STATE_COMPLETED ? (interpreter_frame *)g->gi_iframe : NULL;
}

/* Borrowed. */
static PyObject *
awaited_object(PyObject *generator)
{
    if (((PyGenObject *)generator)->gi_frame_state != STATE_AWAITING)
        return NULL;
    interpreter_frame *f = frame_of(generator);
    return f->local[f->stack_top - 1];
}

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

static bool
is_named(PyObject *o, const char *const *names)
{
    for (; *names != NULL; names++)
        if (strcmp(Py_TYPE(o)->tp_name, *names) == 0)
            return true;
    return false;
}

static bool
is_generator_step(PyObject *o)
{
    static const char *const names[] = {"async_generator_asend", "async_generator_athrow",
                                        "anext_awaitable", "coroutine_wrapper", NULL};
    return is_named(o, names);
}

/* What `await future` waits in has nothing to tell. */
static bool
is_future_iterator(PyObject *o)
{
    static const char *const names[] = {"goloop._core.FutureIter", "_asyncio.FutureIter", NULL};
    return is_named(o, names);
}

static int
find_generator(PyObject *o, void *found)
{
    if (!is_generator(o) && !is_generator_step(o))
        return 0;
    *(PyObject **)found = o;
    return 1;
}

static int
read_chain(PyObject *Py_UNUSED(first), void *arg)
{
    await_chain *all = arg;
    PyObject *o = all->coroutine;
    while (o != NULL && all->n < CHAIN_MAX) {
        PyObject *next = NULL;
        if (is_generator(o)) {
            append_frame(all, ((PyGenObject *)o)->gi_qualname, frame_of(o));
            next = awaited_object(o);
        } else if (is_generator_step(o)) { /* which does not say of which generator */
            (void)Py_TYPE(o)->tp_traverse(o, find_generator, &next);
        } else if (!is_future_iterator(o)) {
            all->rest = Py_NewRef(o);
        }
        o = next;
    }
    return 0;
}

/* ---- afterwards -------------------------------------------------------------------------------- */

static PyObject *
frame_tuple(const chain_frame *f)
{
    PyCodeObject *code = (PyCodeObject *)f->code;
    PyObject *name = f->name ? f->name : code ? code->co_qualname : NULL;
    if (name == NULL)
        return Py_BuildValue("ssi", "", "", 0);
    if (code == NULL)
        return Py_BuildValue("Osi", name, "", 0);
    return Py_BuildValue("OOi", name, code->co_filename, f->line > 0 ? f->line : 0);
}

static PyObject *
frame_list(await_chain *all)
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

static PyObject *
await_frames(PyObject *Py_UNUSED(module), PyObject *coroutine)
{
    await_chain all = {.coroutine = coroutine};
    PyUnstable_GC_VisitObjects(read_chain, &all);
    PyObject *list = frame_list(&all);
    PyObject *both = list ? PyTuple_Pack(2, list, all.rest ? all.rest : Py_None) : NULL;
    Py_XDECREF(list);
    Py_XDECREF(all.rest);
    return both;
}

/* Those of asyncio's own futures and tasks have no lock.  No Python runs, so the loop's is held
 * all the time. */
static PyObject *
guarded_attribute(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3)
        return PyErr_Format(PyExc_TypeError, "_guarded_attribute() takes a loop, a future, a name");
    GL_GUARD(gl_as_loop(args[0]));
    return PyObject_GetAttr(args[1], args[2]);
}

static PyMethodDef stopped_world_functions[] = {
    {"_guarded_attribute", GL_FAST(guarded_attribute),
     PyDoc_STR("A future's attribute, read while the loop's thread does not run Python.")},
    {"_await_frames", await_frames, METH_O,
     PyDoc_STR("What a coroutine awaits, innermost last, and the awaitable that is none of "
               "Python's own, where the chain comes to one.")},
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
