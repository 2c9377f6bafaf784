/*
 * probe.c: what tasks/layout_check.py needs to compare layout.h with the running CPython,
 * and the switch that makes goloop.Future and goloop.Task exist.
 *
 * The probe itself is Python, since it works through asyncio's public API.  It asks
 * here for the words and flags of objects that it has put into a known state
 * (_peek), and for the words of the thread state (_thread_words).
 * Only if all are where they must be does it call _enable_tasks(); any difference is
 * the reason that goloop.diagnostics() tells, and leaves the stdlib's classes in use.
 */
#include "tasks/private.h"

typedef struct gl_peeked {
    const char *name;
    unsigned long long value;
} gl_peeked;

static int
put_fields(PyObject *d, const gl_peeked *field, size_t n)
{
    int r = d ? 0 : -1;
    for (; r == 0 && n > 0; field++, n--) {
        PyObject *value = PyLong_FromUnsignedLongLong(field->value);
        r = value ? PyDict_SetItemString(d, field->name, value) : -1;
        Py_XDECREF(value);
    }
    return r;
}

#define PUT(d, fields) put_fields(d, fields, sizeof fields / sizeof *fields)

/* _core._layout(): sizes to compare before anything is peeked at; None: no layout.  The
 * offsets are for a test that reads CPython's own table of them, which 3.14 has. */
static PyObject *
core_layout(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (!GL_LAYOUT_KNOWN)
        Py_RETURN_NONE;
    const gl_peeked numbers[] = {
        {"future", sizeof(gl_future)},          {"task", sizeof(gl_base_task)},
#if GL_LAYOUT_AWAITED_BY
        {"task_name", offsetof(gl_task, name)}, {"task_coro", offsetof(gl_task, coro)},
        {"task_node", offsetof(gl_task, node)}, {"task_awaited_by", offsetof(gl_task, awaited_by)},
#endif
    };
    PyObject *d = PyDict_New();
    if (PUT(d, numbers) < 0)
        Py_CLEAR(d);
    return d;
}

#define WORD(name, word) {name, (unsigned long long)(uintptr_t)(word)},
#define INT(field) {#field, (unsigned long long)t->field},
#define OBJECT(field) WORD(#field, t->field)

static int
put_task(PyObject *d, const gl_base_task *t)
{
    const gl_peeked fields[] = {
        GL_FUTURE_OBJECTS(OBJECT) INT(state) INT(log_tb) INT(blocking) GL_TASK_OBJECTS(OBJECT)
            INT(must_cancel) INT(log_destroy_pending) INT(num_cancels)
#if GL_LAYOUT_OWN_DICT
                OBJECT(weakrefs)
#endif
#if GL_LAYOUT_AWAITED_BY
                    INT(awaited_by_is_set) INT(is_task) WORD("node_next", t->node.next)
                        WORD("node_prev", t->node.prev)
#endif
    };
    return PUT(d, fields);
}

/* _core._peek(future): the fields, words as addresses, by the names of layout.h; 0 for those of a
 * Task where it is none. */
static PyObject *
core_peek(PyObject *Py_UNUSED(module), PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    bool is_task = PyType_IsSubtype(type, G.asyncio.Task);
    size_t size = is_task ? sizeof(gl_base_task) : sizeof(gl_future);
    if (!GL_LAYOUT_KNOWN || !PyType_IsSubtype(type, G.asyncio.Future) ||
        type->tp_basicsize < (Py_ssize_t)size) {
        PyErr_SetString(PyExc_TypeError, "not a future of a known layout");
        return NULL;
    }
    gl_base_task copy;
    memset(&copy, 0, sizeof copy);
    memcpy(&copy, o, size);
    PyObject *d = PyDict_New();
    if (put_task(d, &copy) < 0)
        Py_CLEAR(d);
    return d;
}

#undef WORD
#undef INT
#undef OBJECT
#undef PUT

/* The words of the thread state after its public part; asyncio has some of them since 3.14. */
#define GL_TS_WORDS ((Py_ssize_t)((GL_THREAD_STATE_END - sizeof(PyThreadState)) / sizeof(void *)))

/* _core._thread_words(): of the calling thread's state, past its public part, the words in bytes;
 * the offset of the first of them, and its address. */
static PyObject *
core_thread_words(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    void *first = PyThreadState_Get() + 1;
    return Py_BuildValue("y#nN", first, GL_TS_WORDS * (Py_ssize_t)sizeof(void *),
                         (Py_ssize_t)sizeof(PyThreadState), PyLong_FromVoidPtr(first));
}

/* _core._task_names(module[, offset]): what the state of a module has, or None; with an offset, the
 * word by which default names are counted from then on. */
static PyObject *
core_task_names(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *of;
    Py_ssize_t offset = -1;
    if (!PyArg_ParseTuple(args, "O!|n", &PyModule_Type, &of, &offset))
        return NULL;
    PyModuleDef *def = PyModule_GetDef(of);
    char *state = PyModule_GetState(of);
    if (def == NULL || state == NULL)
        return PyErr_Clear(), Py_NewRef(Py_None);
    if (offset >= 0) {
        G.task_names = (unsigned long long *)(void *)(state + offset);
        Py_INCREF(of); /* for good */
    }
    return PyMemoryView_FromMemory(state, def->m_size, PyBUF_WRITE);
}

/* ---- the switch ------------------------------------------------------------------- */

#ifdef GL_FREE_THREADED
/* What a Future has of asyncio's, too, is called with its loop's lock. */
static int
guard_types(PyTypeObject *future, PyTypeObject *task)
{
    /* The Task first, for it is a Future too. */
    if (gl_guard_type(task, GL_OWNER_LOOP_FUTURE, NULL, GL_GUARD_DEALLOC) < 0 ||
        gl_guard_type(future, GL_OWNER_LOOP_FUTURE, NULL, GL_GUARD_CALLS) < 0 ||
        gl_guard_inherited(future, G.asyncio.Future, GL_OWNER_LOOP_FUTURE) < 0 ||
        gl_guard_inherited(task, G.asyncio.Task, GL_OWNER_LOOP_FUTURE) < 0 ||
        gl_guard_type(G.future_iter_type, GL_OWNER_LOOP_NONE, NULL, GL_GUARD_CALLS) < 0)
        return -1;
    future->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
    task->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
    PyType_Modified(future);
    PyType_Modified(task);
    return 0;
}
#endif

static int
make_types(PyObject *module)
{
    PyObject *task = NULL, *bases = NULL;
#ifdef GL_FREE_THREADED
    future_spec.flags &= ~(unsigned)Py_TPFLAGS_IMMUTABLETYPE; /* until they are guarded */
    task_spec.flags &= ~(unsigned)Py_TPFLAGS_IMMUTABLETYPE;
#endif
    PyObject *future = PyType_FromSpecWithBases(&future_spec, (PyObject *)G.asyncio.Future);
    G.future_iter_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &future_iter_spec, NULL);
    if (future && G.future_iter_type)
        bases = PyTuple_Pack(2, G.asyncio.Task, future);
    if (bases)
        task = PyType_FromSpecWithBases(&task_spec, bases);
    Py_XDECREF(bases);
    if (task == NULL) {
        Py_XDECREF(future);
        return -1;
    }
#if GL_HAS_INLINE_VALUES
    /* From 3.14 on each instance would carry room for 30 attributes, which hardly
     * any future ever has: 480 bytes for a task instead of 200, all to be cleared.
     * Without the flag the dict is made at the first attribute, as in 3.13. */
    ((PyTypeObject *)future)->tp_flags &= ~(unsigned long)Py_TPFLAGS_INLINE_VALUES;
    ((PyTypeObject *)task)->tp_flags &= ~(unsigned long)Py_TPFLAGS_INLINE_VALUES;
#endif
#ifdef GL_FREE_THREADED
    if (guard_types((PyTypeObject *)future, (PyTypeObject *)task) < 0) {
        Py_DECREF(future);
        Py_DECREF(task);
        return -1;
    }
#endif
    G.future_type = (PyTypeObject *)future;
    G.task_type = (PyTypeObject *)task;
    return 0;
}

/* _core._enable_tasks(offsets, objects) -> (Future, Task), with the offsets into the thread state
 * and what G.asyncio has of objects.  Only for goloop/_internal/tasks/layout_check.py; once. */
static PyObject *
core_enable_tasks(PyObject *module, PyObject *args)
{
    if (!GL_LAYOUT_KNOWN) {
        PyErr_SetString(PyExc_RuntimeError, "no layout for this Python");
        return NULL;
    }
    if (G.task_type == NULL) {
        if (!PyArg_ParseTuple(
                args, "(nnn)(O!O!OOOOOOOO)", &G.asyncio.ts_loop, &G.asyncio.ts_task,
                &G.asyncio.ts_tasks_head, &PyFrozenSet_Type, &G.asyncio.create_task_names,
                &PyDict_Type, &G.asyncio.current_tasks, &G.asyncio.Future_add_done_callback,
                &G.asyncio.Future_cancel, &G.asyncio.Future_set_exception, &G.asyncio.Task_cancel,
                &G.asyncio.iscoroutine, &G.asyncio.iter_throw, &G.asyncio.step, &G.asyncio.wait))
            return NULL;
        Py_INCREF(args); /* for good: the objects are borrowed from it */
        if (make_types(module) < 0)
            return NULL;
    }
    return PyTuple_Pack(2, G.future_type, G.task_type);
}

static PyMethodDef task_functions[] = {
    {"_layout", core_layout, METH_NOARGS, PyDoc_STR("For goloop/_internal/tasks/layout_check.py.")},
    {"_peek", core_peek, METH_O, PyDoc_STR("For goloop/_internal/tasks/layout_check.py.")},
    {"_thread_words", core_thread_words, METH_NOARGS,
     PyDoc_STR("For goloop/_internal/tasks/layout_check.py.")},
    {"_task_names", core_task_names, METH_VARARGS,
     PyDoc_STR("For goloop/_internal/tasks/layout_check.py.")},
    {"_enable_tasks", core_enable_tasks, METH_VARARGS,
     PyDoc_STR("For goloop/_internal/tasks/layout_check.py.")},
    {"_step", GL_FAST(core_step), PyDoc_STR("For goloop/_internal/tasks/slow_path.py.")},
    {"_live_tasks", core_live_tasks, METH_NOARGS,
     PyDoc_STR("For goloop/_internal/tasks/task_set.py.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_tasks_init(PyObject *module)
{
    G.task_names = &G.own_task_names;
    G.own_tasks.next = G.own_tasks.prev = &G.own_tasks;
    G.task_wakeup = &wakeup_def;
    PyObject *future = gl_import_attr("_asyncio", "Future");
    PyObject *task = future ? gl_import_attr("_asyncio", "Task") : NULL;
    G.asyncio.Future = (PyTypeObject *)future, G.asyncio.Task = (PyTypeObject *)task;
    return task ? PyModule_AddFunctions(module, task_functions) : -1;
}
