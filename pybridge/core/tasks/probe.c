/*
 * probe.c: what goloop/probe.py needs to compare layout.h with the running CPython,
 * and the switch that makes goloop.Future and goloop.Task exist.
 *
 * The probe itself is Python, since it works through asyncio's public API.  It asks
 * here for the words and flags of objects that it has put into a known state
 * (_peek), and for the offsets of known pointers in the thread state (_find_slots).
 * Only if all are where they must be does it call _enable_tasks(); any difference is
 * the reason that goloop.diagnostics() tells, and leaves the stdlib's classes in use.
 */
#include "tasks/private.h"

/* _core._layout(): sizes to compare before anything is peeked at; None: no layout. */
static PyObject *
core_layout(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    if (!GL_LAYOUT_KNOWN)
        Py_RETURN_NONE;
    return Py_BuildValue(
        "{snsnsnsnsnsn}", "future", (Py_ssize_t)sizeof(gl_future), "task",
        (Py_ssize_t)sizeof(gl_base_task), "task_name", (Py_ssize_t)offsetof(gl_task, name),
        "task_coro", (Py_ssize_t)offsetof(gl_task, coro),
        /* For a test that reads CPython's own table of offsets; -1 where it has none. */
        "task_awaited_by",
#if GL_LAYOUT_AWAITED_BY
        (Py_ssize_t)offsetof(gl_task, awaited_by), "task_node",
        (Py_ssize_t)offsetof(gl_task, node)
#else
        (Py_ssize_t)-1, "task_node", (Py_ssize_t)-1
#endif
    );
}

static int
put_word(PyObject *d, const char *name, const void *word)
{
    PyObject *v = PyLong_FromVoidPtr((void *)word);
    int r = v ? PyDict_SetItemString(d, name, v) : -1;
    Py_XDECREF(v);
    return r;
}

static int
put_int(PyObject *d, const char *name, long value)
{
    PyObject *v = PyLong_FromLong(value);
    int r = v ? PyDict_SetItemString(d, name, v) : -1;
    Py_XDECREF(v);
    return r;
}

/* _core._peek(future): the fields, words as addresses, by the names of layout.h. */
static PyObject *
core_peek(PyObject *Py_UNUSED(module), PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    bool is_task = PyType_IsSubtype(type, (PyTypeObject *)G.asyncio.Task);
    if (!GL_LAYOUT_KNOWN || !PyType_IsSubtype(type, G.asyncio.Future) ||
        type->tp_basicsize <
            (Py_ssize_t)(is_task ? sizeof(gl_base_task) : sizeof(gl_future))) {
        PyErr_SetString(PyExc_TypeError, "not a future of a known layout");
        return NULL;
    }
    gl_future *f = (gl_future *)o;
    PyObject *d = PyDict_New();
    if (d == NULL)
        return NULL;
#define WORD(p, field)                                                         \
    if (put_word(d, #field, (p)->field) < 0)                                   \
        goto fail;
#define INT(p, field)                                                          \
    if (put_int(d, #field, (long)(p)->field) < 0)                              \
        goto fail;
    WORD(f, loop) WORD(f, callback0) WORD(f, context0) WORD(f, callbacks) WORD(f, exception)
    WORD(f, exception_tb) WORD(f, result) WORD(f, source_traceback) WORD(f, cancel_msg)
    WORD(f, cancelled_exc) INT(f, state) INT(f, log_tb) INT(f, blocking)
#if GL_LAYOUT_OWN_DICT
    WORD(f, dict) WORD(f, weakrefs)
#endif
#if GL_LAYOUT_AWAITED_BY
    WORD(f, awaited_by) INT(f, awaited_by_is_set) INT(f, is_task)
#endif
    if (is_task) {
        gl_base_task *t = (gl_base_task *)o;
        WORD(t, fut_waiter) WORD(t, coro) WORD(t, name) WORD(t, context)
        INT(t, must_cancel) INT(t, log_destroy_pending) INT(t, num_cancels)
#if GL_LAYOUT_AWAITED_BY
        if (put_word(d, "node_next", t->node.next) < 0 ||
            put_word(d, "node_prev", t->node.prev) < 0)
            goto fail;
#endif
    }
#undef WORD
#undef INT
    return d;
fail:
    Py_DECREF(d);
    return NULL;
}

#if GL_LAYOUT_AWAITED_BY
/* How far the thread state surely reaches: the smallest _PyThreadStateImpl of the version's
 * releases, up to and with mem_free_queue, the last field that they all have.  What is public
 * of it differs between patch releases too: 824 bytes in 3.14.3, 832 in 3.14.10. */
#if PY_VERSION_HEX >= 0x030F0000
#define GL_TS_END 1080 /* the list head ends at 1064 in 3.15.2, the whole at 1096 */
#else
#define GL_TS_END 912 /* the list head ends at 896 in 3.14.10, the whole at 936 */
#endif
#define GL_TS_WORDS ((int)((GL_TS_END - sizeof(PyThreadState)) / sizeof(void *)))
#endif

/* _core._find_slots(loop, task, head): for each the offsets in the calling thread's
 * state, past its public part, of a word that holds the object (loop, task), or of
 * the address `head` itself. */
static PyObject *
core_find_slots(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *loop, *task, *head_number;
    if (!PyArg_ParseTuple(args, "OOO!", &loop, &task, &PyLong_Type, &head_number))
        return NULL;
    PyObject *lists[3] = {PyList_New(0), PyList_New(0), PyList_New(0)};
    bool good = lists[0] && lists[1] && lists[2];
#if GL_LAYOUT_AWAITED_BY
    void *head = PyLong_AsVoidPtr(head_number);
    char *ts = (char *)PyThreadState_Get();
    for (int i = 0; good && i < GL_TS_WORDS; i++) {
        Py_ssize_t offset = (Py_ssize_t)sizeof(PyThreadState) + i * (Py_ssize_t)sizeof(void *);
        void *word = *(void **)(ts + offset);
        PyObject *n = PyLong_FromSsize_t(offset);
        good = n != NULL;
        if (good && word == (void *)loop)
            good = PyList_Append(lists[0], n) == 0;
        if (good && word == (void *)task)
            good = PyList_Append(lists[1], n) == 0;
        if (good && (void *)(ts + offset) == head)
            good = PyList_Append(lists[2], n) == 0;
        Py_XDECREF(n);
    }
#endif
    PyObject *answer = good ? PyTuple_Pack(3, lists[0], lists[1], lists[2]) : NULL;
    for (int i = 0; i < 3; i++)
        Py_XDECREF(lists[i]);
    return answer;
}

/* ---- the switch ------------------------------------------------------------------- */

GL_PRIVATE int
gl_tasks_init(void)
{
    G.own_tasks.next = G.own_tasks.prev = &G.own_tasks;
    G.asyncio.Future = (PyTypeObject *)gl_import_attr("_asyncio", "Future");
    G.asyncio.Task = (PyTypeObject *)gl_import_attr("_asyncio", "Task");
    G.asyncio.BaseEventLoop_create_task = gl_import_attr("asyncio.base_events", "BaseEventLoop");
    if (G.asyncio.BaseEventLoop_create_task)
        Py_SETREF(G.asyncio.BaseEventLoop_create_task,
                  PyObject_GetAttr(G.asyncio.BaseEventLoop_create_task, G.s_create_task));
    return G.asyncio.Future && G.asyncio.Task && G.asyncio.BaseEventLoop_create_task ? 0 : -1;
}

static int
import_for_tasks(void)
{
    G.asyncio.iscoroutine = gl_import_attr("asyncio.coroutines", "iscoroutine");
    G.asyncio.Future_add_done_callback = PyObject_GetAttr((PyObject *)G.asyncio.Future, G.s_add_done_callback);
    G.asyncio.Future_cancel = PyObject_GetAttr((PyObject *)G.asyncio.Future, G.s_cancel);
    G.asyncio.Task_cancel = PyObject_GetAttr((PyObject *)G.asyncio.Task, G.s_cancel);
    if (!G.asyncio.iscoroutine || !G.asyncio.Future_add_done_callback || !G.asyncio.Future_cancel || !G.asyncio.Task_cancel)
        return -1;
#if !GL_LAYOUT_AWAITED_BY
    G.asyncio.current_tasks = gl_import_attr("_asyncio", "_current_tasks");
    if (G.asyncio.current_tasks == NULL)
        return -1;
    if (!PyDict_CheckExact(G.asyncio.current_tasks)) {
        PyErr_SetString(PyExc_TypeError, "_asyncio._current_tasks is no dict");
        return -1;
    }
#endif
    return 0;
}

/* _core._enable_tasks(create_task_names, wraps_stop_iteration, ts_loop, ts_task,
 * ts_tasks_head) -> (Future, Task).  Only for goloop/probe.py; once. */
static PyObject *
core_enable_tasks(PyObject *module, PyObject *args)
{
    PyObject *names;
    int wraps;
    if (!PyArg_ParseTuple(args, "O!pnnn", &PyFrozenSet_Type, &names, &wraps, &G.asyncio.ts_loop,
                          &G.asyncio.ts_task, &G.asyncio.ts_tasks_head))
        return NULL;
    if (!GL_LAYOUT_KNOWN) {
        PyErr_SetString(PyExc_RuntimeError, "no layout for this Python");
        return NULL;
    }
    if (G.task_type == NULL) {
        G.asyncio.create_task_names = Py_NewRef(names);
        G.asyncio.wraps_stop_iteration = wraps != 0;
        if (import_for_tasks() < 0)
            return NULL;
        G.step_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &step_spec, NULL);
        PyTypeObject *future =
            (PyTypeObject *)PyType_FromSpecWithBases(&future_spec, (PyObject *)G.asyncio.Future);
        G.future_iter_type =
            (PyTypeObject *)PyType_FromModuleAndSpec(module, &future_iter_spec, NULL);
        if (G.step_type == NULL || future == NULL || G.future_iter_type == NULL)
            return NULL;
        PyObject *bases = PyTuple_Pack(2, G.asyncio.Task, future);
        if (bases == NULL)
            return NULL;
        PyTypeObject *task = (PyTypeObject *)PyType_FromSpecWithBases(&task_spec, bases);
        Py_DECREF(bases);
        if (task == NULL)
            return NULL;
#if PY_VERSION_HEX >= 0x030E0000
        /* From 3.14 on each instance would carry room for 30 attributes, which hardly
         * any future ever has: 480 bytes for a task instead of 200, all to be cleared.
         * Without the flag the dict is made at the first attribute, as in 3.13. */
        future->tp_flags &= ~(unsigned long)Py_TPFLAGS_INLINE_VALUES;
        task->tp_flags &= ~(unsigned long)Py_TPFLAGS_INLINE_VALUES;
#endif
        G.future_type = future;
        G.task_type = task;
    }
    return PyTuple_Pack(2, G.future_type, G.task_type);
}

#define GL_TASK_MODULE_METHODS                                                                \
    {"_layout", core_layout, METH_NOARGS, PyDoc_STR("For goloop/probe.py.")},                 \
    {"_peek", core_peek, METH_O, PyDoc_STR("For goloop/probe.py.")},                          \
    {"_find_slots", core_find_slots, METH_VARARGS, PyDoc_STR("For goloop/probe.py.")},        \
    {"_enable_tasks", core_enable_tasks, METH_VARARGS, PyDoc_STR("For goloop/probe.py.")},    \
    {"_live_tasks", core_live_tasks, METH_NOARGS, PyDoc_STR("For goloop/task_set.py.")}
