/*
 * probe.c: functions by which goloop/_internal/tasks/layout_check.py compares layout.h with the
 * running CPython, and the function that creates goloop.Future and goloop.Task.
 *
 * The probe itself is Python, since it works through asyncio's public API.  It puts objects into a
 * known state and reads their words and flags (_peek), and the words of the thread state
 * (_thread_words).  If all words and flags are where layout.h has them, it calls _enable_tasks().
 * Any difference becomes the reason in goloop.diagnostics(), and the stdlib's classes stay in use.
 */
#include "tasks/private.h"

/* A size, an offset or a field's value, for Python. */
typedef struct named_value {
    const char *name;
    unsigned long long value;
} named_value;

/* Adds `n` integers to a dict by their names.  `d` is NULL after a failed PyDict_New(). */
static int
dict_add_values(PyObject *d, const named_value *field, size_t n)
{
    int r = d ? 0 : -1;
    for (; r == 0 && n > 0; field++, n--) {
        PyObject *value = PyLong_FromUnsignedLongLong(field->value);
        r = -1;
        if (value != NULL)
            r = PyDict_SetItemString(d, field->name, value);
        Py_XDECREF(value);
    }
    return r;
}

/* dict_add_values() for an array. */
#define PUT(d, fields) dict_add_values(d, fields, sizeof fields / sizeof *fields)

/* _core._layout(): a dict with the sizes in bytes, which are compared before any object is read;
 * None: goloop has no layout for this Python.  The offsets are for a test that compares them with
 * CPython's own table, which 3.14 has. */
static PyObject *
core_layout(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (!GL_LAYOUT_KNOWN)
        Py_RETURN_NONE;
    const named_value numbers[] = {
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

/* Adds the fields of a task to a dict, objects as addresses. */
static int
put_task_fields(PyObject *d, const gl_base_task *t)
{
    const named_value fields[] = {
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

/* _core._peek(future): a dict of the fields by their names in layout.h, with objects as addresses.
 * The fields of a Task are 0 for a Future.  TypeError for another object, or without a layout. */
static PyObject *
core_peek(PyObject *Py_UNUSED(module), PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    bool is_task = PyType_IsSubtype(type, G.asyncio.Task);
    size_t size = is_task ? sizeof(gl_base_task) : sizeof(gl_future);
    if (!GL_LAYOUT_KNOWN || !PyType_IsSubtype(type, G.asyncio.Future) ||
        type->tp_basicsize < (Py_ssize_t)size) {
        PyErr_Format(PyExc_TypeError, "a future of a known layout was expected, got %.200s",
                     type->tp_name);
        return NULL;
    }
    gl_base_task copy;
    memset(&copy, 0, sizeof copy);
    memcpy(&copy, o, size);
    PyObject *d = PyDict_New();
    if (put_task_fields(d, &copy) < 0)
        Py_CLEAR(d);
    return d;
}

#undef WORD
#undef INT
#undef OBJECT
#undef PUT

/* The number of words after the public part of the thread state; asyncio uses some since 3.14. */
#define GL_TS_WORDS ((Py_ssize_t)((GL_THREAD_STATE_END - sizeof(PyThreadState)) / sizeof(void *)))

/* _core._thread_words(): the words after the public part of the calling thread's state, as bytes,
 * with the offset and the address of the first word. */
static PyObject *
core_thread_words(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    void *first = PyThreadState_Get() + 1;
    return Py_BuildValue("y#nN", first, GL_TS_WORDS * (Py_ssize_t)sizeof(void *),
                         (Py_ssize_t)sizeof(PyThreadState), PyLong_FromVoidPtr(first));
}

/* _core._task_names(module[, offset]): a memoryview of the module's state, or None.  With an
 * offset, the word there is the counter of default names from then on, for goloop.Task too;
 * ValueError if the state has no word at the offset. */
static PyObject *
core_task_names(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *of;
    Py_ssize_t offset = -1;
    if (!PyArg_ParseTuple(args, "O!|n", &PyModule_Type, &of, &offset))
        return NULL;
    PyModuleDef *def = PyModule_GetDef(of);
    char *state = PyModule_GetState(of);
    if (def == NULL || state == NULL) {
        PyErr_Clear();
        Py_RETURN_NONE;
    }
    if (offset >= 0) {
        const Py_ssize_t size = (Py_ssize_t)sizeof *G.task_names;
        if (offset > def->m_size - size || offset % size != 0)
            return PyErr_Format(PyExc_ValueError, "no counter at offset %zd", offset);
        G.task_names = (unsigned long long *)(void *)(state + offset);
        Py_INCREF(of); /* never released, since G.task_names points into its state */
    }
    return PyMemoryView_FromMemory(state, def->m_size, PyBUF_WRITE);
}

/* ---- the switch ------------------------------------------------------------------- */

#ifdef GL_FREE_THREADED
/* Lets all methods of both types lock the loop, including the methods inherited from asyncio, and
 * those of FutureIter; then makes both types immutable. */
static int
guard_types(PyTypeObject *future, PyTypeObject *task)
{
    /* The Task comes first, since it inherits from the Future. */
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

/* Creates goloop.Future, goloop.Task and the iterator, and stores the types in G.  On failure
 * G.future_type and G.task_type stay NULL. */
static int
make_types(PyObject *module)
{
    PyObject *task = NULL;
    PyObject *bases = NULL;
#ifdef GL_FREE_THREADED
    /* guard_types() sets the flag again. */
    future_spec.flags &= ~(unsigned)Py_TPFLAGS_IMMUTABLETYPE;
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
    /* From 3.14 on each instance would have space for 30 attributes, though few futures have
     * any: 480 bytes for a task instead of 200, all of which must be cleared.  Without the flag
     * the dict is created with the first attribute, as in 3.13. */
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

/* _core._enable_tasks(offsets, objects) -> (Future, Task): creates the types, or returns the
 * existing ones.  Takes the offsets into the thread state and the objects of G.asyncio.
 * RuntimeError without a layout.  Only for layout_check.py. */
static PyObject *
core_enable_tasks(PyObject *module, PyObject *args)
{
    if (!GL_LAYOUT_KNOWN) {
        PyErr_SetString(PyExc_RuntimeError, "goloop knows no Task layout for this Python");
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
        Py_INCREF(args); /* never released, since the objects are borrowed from it */
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
    G.own_tasks.next = &G.own_tasks;
    G.own_tasks.prev = &G.own_tasks;
    G.task_wakeup = &wakeup_def;
    PyObject *future = gl_import_attr("_asyncio", "Future");
    PyObject *task = NULL;
    if (future != NULL)
        task = gl_import_attr("_asyncio", "Task");
    G.asyncio.Future = (PyTypeObject *)future;
    G.asyncio.Task = (PyTypeObject *)task;
    if (task == NULL)
        return -1;
    return PyModule_AddFunctions(module, task_functions);
}
