/*
 * transport_type.c: the methods and attributes that the types of transports share, the data that
 * is kept while reading is paused, and the construction of these types on top of asyncio's classes.
 */
#include "transports/transports.h"

static const gl_params set_protocol_params =
    GL_PARAMS("_SelectorTransport.set_protocol", 1, 1, false, GL_NAME(protocol));

GL_PRIVATE int
gl_count_late_write(uint32_t *count, const char *warning)
{
    PyObject *limit = PyObject_GetAttr(G.asyncio_constants, G.s_LOG_THRESHOLD_FOR_CONNLOST_WRITES);
    if (limit == NULL)
        return -1;
    long threshold = PyLong_AsLong(limit);
    Py_DECREF(limit);
    if (threshold == -1 && PyErr_Occurred())
        return -1;
    if ((long)*count >= threshold &&
        gl_drop_result(PyObject_CallMethod(G.logger, GL_METHOD(warning), "s", warning)) < 0)
        return -1;
    if (*count < UINT32_MAX)
        ++*count;
    return 0;
}

GL_PRIVATE void
gl_transport_set_data_error(PyObject *transport, PyObject *data)
{
    Py_XDECREF(PyObject_CallFunctionObjArgs(G.refuse_data, transport, data, NULL)); /* raises */
}

/* ---- methods ----------------------------------------------------------------------------- */

/* close(). */
static PyObject *
transport_close_method(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    return gl_none_or_null(transport_close(t));
}

/* abort(). */
static PyObject *
transport_abort_method(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    return gl_none_or_null(gl_transport_force_close(t, Py_None));
}

/* _force_close(exc). */
static PyObject *
transport_force_close_method(gl_transport *t, PyObject *exc)
{
    return gl_none_or_null(gl_transport_force_close(t, exc));
}

/* _call_connection_lost(exc), as a scheduled handle calls it. */
static PyObject *
transport_connection_lost_method(gl_transport *t, PyObject *exc)
{
    return gl_none_or_null(gl_transport_connection_lost(t, exc));
}

/* is_closing(). */
static PyObject *
transport_is_closing_method(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(is_closing(t));
}

/* is_reading(): neither paused nor closing. */
static PyObject *
transport_is_reading_method(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    return PyBool_FromLong(!is_closing(t) && !t->paused);
}

/* get_protocol(): the protocol, or None after connection_lost. */
static PyObject *
transport_get_protocol_method(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    return gl_ref_or_none(t->protocol);
}

/* set_protocol(protocol): adapts the transport to the protocol, and then sets the protocol.  NULL
 * with the exception of the adaptation, and nothing has changed. */
static PyObject *
transport_set_protocol(gl_transport *t, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames)
{
    PyObject *protocol = gl_arg(&set_protocol_params, t, args, nargs, kwnames);
    if (protocol == NULL ||
        (t->ops->protocol_changed != NULL && t->ops->protocol_changed(t, protocol) < 0))
        return NULL;
    Py_XSETREF(t->protocol, Py_NewRef(protocol));
    Py_RETURN_NONE;
}

/* Logs `format`, with the transport as %r, if the loop is in debug mode; the loop may be gone.
 * Returns None. */
static PyObject *
transport_log_debug(gl_transport *t, const char *format)
{
    if (t->loop != NULL && t->loop->debug)
        gl_log_debug((PyObject *)t, format);
    Py_RETURN_NONE;
}

/* pause_reading(): stops receiving.  Bytes that were received already become paused data.  Does
 * nothing if the transport is paused or closing; RuntimeError if the loop is foreign. */
static PyObject *
transport_pause_reading(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    if (is_closing(t) || t->paused)
        Py_RETURN_NONE;
    if (gl_loop_is_foreign(t->loop))
        return gl_none_or_null(gl_loop_check_usable(t->loop));
    t->paused = true;
    if (!t->loop->closed && gl_transport_update_interest(t) < 0)
        return NULL;
    return transport_log_debug(t, "%r pauses reading");
}

/* resume_reading(): schedules the delivery of paused data, or receives again.  Does nothing if the
 * transport is not paused, or is closing; RuntimeError if the loop is closed or foreign. */
static PyObject *
transport_resume_reading(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    if (is_closing(t) || !t->paused)
        Py_RETURN_NONE;
    if (gl_loop_check_usable(t->loop) < 0)
        return NULL;
    t->paused = false;
    int rc;
    if (t->ops->prepare_delivery(t))
        rc = gl_transport_schedule_delivery(t);
    else
        rc = gl_transport_update_interest(t);
    if (rc < 0) {
        t->paused = true; /* another call tries again */
        return NULL;
    }
    return transport_log_debug(t, "%r resumes reading");
}

/* ---- paused data ---------------------------------------------- */

GL_PRIVATE int
gl_transport_schedule_delivery(gl_transport *t)
{
    if (t->delivery_scheduled)
        return 0;
    if (gl_transport_call_soon(t, G.s__deliver_paused_data, NULL) < 0)
        return -1;
    t->delivery_scheduled = true;
    return 0;
}

GL_PRIVATE int
gl_transport_deliver_paused_data(gl_transport *t)
{
    int rc = 0;
    while (rc == 0 && !t->paused && !discards_received(t) &&
           (t->paused_data != NULL || t->paused_end) &&
           !(t->ops->begin_or_check_share != NULL && t->ops->begin_or_check_share(t))) {
        PyObject *item = NULL;
        if (t->paused_data != NULL) {
            item = Py_NewRef(PyList_GET_ITEM(t->paused_data, 0));
            if (PyList_GET_SIZE(t->paused_data) == 1)
                Py_CLEAR(t->paused_data);
            else
                rc = PyList_SetSlice(t->paused_data, 0, 1, NULL);
        }
        if (rc == 0)
            rc = t->ops->deliver_item(t, item);
        Py_XDECREF(item);
    }
    return rc;
}

/* _deliver_paused_data(): runs as a handle, which has the transport's context and reports an
 * exception.  Afterwards schedules another handle for remaining items, or receives again if there
 * are none; without memory for that, ends the transport.  The items of a closing transport are
 * dropped. */
static PyObject *
transport_deliver_paused_data_method(gl_transport *t, PyObject *Py_UNUSED(ignored))
{
    int rc = gl_transport_deliver_paused_data(t);
    t->delivery_scheduled = false;
    PyObject *exc = NULL;
    if (rc < 0)
        exc = gl_take_exception();
    rc = 0;
    if (discards_received(t))
        gl_transport_discard_paused_data(t);
    else if (!t->paused && (t->paused_data != NULL || t->paused_end))
        rc = gl_transport_schedule_delivery(t);
    else if (!t->paused)
        rc = gl_transport_update_interest(t);
    if (rc < 0)
        gl_transport_end_without_memory(t);
    gl_restore_exception(exc);
    if (exc != NULL)
        return NULL;
    return gl_none_or_null(rc);
}

/* ---- attributes ------------------------------------------------------ */

/* _extra: asyncio's attribute, which hides asyncio's slot.  The dict is created on first access,
 * because most connections never use it. */
static PyObject *
transport_extra_getter(gl_transport *t, void *Py_UNUSED(closure))
{
    if (t->extra == NULL) {
        PyObject *made = PyDict_New(); /* a garbage collection may run Python */
        if (made == NULL)
            return NULL;
        if (t->extra == NULL)
            t->extra = made;
        else
            Py_DECREF(made);
    }
    return Py_NewRef(t->extra);
}

/* Sets _extra; a deletion leaves an empty dict. */
static int
transport_extra_setter(gl_transport *t, PyObject *extra, void *Py_UNUSED(closure))
{
    Py_XSETREF(t->extra, Py_XNewRef(extra));
    return 0;
}

/* _closing: is_closing() as asyncio's attribute. */
static PyObject *
transport_closing_getter(gl_transport *t, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(is_closing(t));
}

/* _receives: true if the transport is registered for receiving, for repr. */
static PyObject *
transport_receives_getter(gl_transport *t, void *Py_UNUSED(closure))
{
    return PyBool_FromLong(t->ops->is_receiving(t));
}

/* ---- the tables of methods and attributes ------------------------------------------------- */

GL_TAKES_NONE(is_closing_checked, transport_is_closing_method, "is_closing")
GL_TAKES_NONE(get_protocol_checked, transport_get_protocol_method, "get_protocol")
GL_TAKES_NONE(is_reading_checked, transport_is_reading_method, "is_reading")
GL_TAKES_NONE(pause_reading_checked, transport_pause_reading, "pause_reading")
GL_TAKES_NONE(resume_reading_checked, transport_resume_reading, "resume_reading")
GL_TAKES_NONE(close_checked, transport_close_method, "close")
GL_TAKES_NONE(abort_checked, transport_abort_method, "abort")

static PyMethodDef transport_methods[] = {
    /* The first entry, which an asyncio.ReadTransport does not get. */
    {"abort", GL_FASTKW(abort_checked),
     PyDoc_STR("abort($self)\n--\n\nClose the transport at once; queued data is lost.")},
    {"is_closing", GL_FASTKW(is_closing_checked),
     PyDoc_STR("is_closing($self)\n--\n\n"
               "Return True if the transport is closing or closed.")},
    {"get_protocol", GL_FASTKW(get_protocol_checked),
     PyDoc_STR("get_protocol($self)\n--\n\nReturn the current protocol.")},
    {"set_protocol", GL_FASTKW(transport_set_protocol),
     PyDoc_STR("set_protocol($self, protocol)\n--\n\nSet a new protocol.")},
    {"is_reading", GL_FASTKW(is_reading_checked),
     PyDoc_STR("is_reading($self)\n--\n\nReturn True if the transport is receiving.")},
    {"pause_reading", GL_FASTKW(pause_reading_checked),
     PyDoc_STR("pause_reading($self)\n--\n\n"
               "Stop passing data to the protocol until resume_reading().")},
    {"resume_reading", GL_FASTKW(resume_reading_checked),
     PyDoc_STR("resume_reading($self)\n--\n\nPass data to the protocol again.")},
    {"close", GL_FASTKW(close_checked),
     PyDoc_STR("close($self)\n--\n\n"
               "Close the transport after queued data is sent; no more data is received.")},
    {"_call_connection_lost", GL_ONEARG(transport_connection_lost_method), NULL},
    {"_deliver_paused_data", GL_NOARGS(transport_deliver_paused_data_method), NULL},
    {"_force_close", GL_ONEARG(transport_force_close_method), NULL},
    {"_start", GL_ONEARG(gl_transport_start_method), NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef transport_attributes[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
    {"_extra", (getter)transport_extra_getter, (setter)transport_extra_setter, NULL, NULL},
    {"_closing", (getter)transport_closing_getter, NULL, NULL, NULL},
    {"_receives", (getter)transport_receives_getter, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* ---- the types ---------------------------------------------------------------------------- */

/* Returns true if asyncio's class has its slots where TRANSPORT_FIELDS has them.  A class without
 * the slots of _FlowControlMixin is accepted too. */
static bool
slots_match(PyObject *cls)
{
    static const struct {
        const char *name;
        Py_ssize_t offset;
    } slots[] = {
        {"_extra", offsetof(gl_transport, extra)},
        {"_high_water", offsetof(gl_transport, high_water)},
        {"_loop", offsetof(gl_transport, slot_loop)},
        {"_low_water", offsetof(gl_transport, low_water)},
        {"_protocol_paused", offsetof(gl_transport, slot_protocol_paused)},
    };
    bool good = PyType_Check(cls) &&
                ((PyTypeObject *)cls)->tp_basicsize <= (Py_ssize_t)offsetof(gl_transport, dict) &&
                gl_slot_offset(cls, "_extra") == slots[0].offset;
    bool flows = good && ((PyTypeObject *)cls)->tp_basicsize == offsetof(gl_transport, dict);
    for (size_t i = 1; flows && good && i < Py_ARRAY_LENGTH(slots); i++)
        good = gl_slot_offset(cls, slots[i].name) == slots[i].offset;
    return good;
}

/* Adds to a new type max_size and the methods and attributes of all transports, and guards them in
 * a build without the GIL.  abort() is left out where the bases have none. */
static int
add_shared_members(PyTypeObject *type, long max_size)
{
    bool aborts = PyObject_HasAttrString((PyObject *)type, "abort");
    if (gl_type_add(type, "max_size", PyLong_FromLong(max_size)) < 0 ||
        gl_type_add_methods(type, transport_methods + !aborts) < 0)
        return -1;
    for (PyGetSetDef *a = transport_attributes; a->name != NULL; a++)
        if (gl_type_add(type, a->name, PyDescr_NewGetSet(type, a)) < 0)
            return -1;
    return GL_GUARD_TYPE(type, gl_transport, owner_loop, NULL, GL_GUARD_DEALLOC);
}

GL_PRIVATE PyTypeObject *
gl_transport_make_type(PyObject *module, PyType_Spec *spec, const char *base, const char *second,
                       long max_size)
{
    PyObject *first = gl_import_attr("asyncio.transports", base);
    PyObject *bases = NULL;
    PyObject *other = NULL;
    if (first && second)
        other = gl_import_attr("asyncio.transports", second);
    PyTypeObject *type = NULL;
    if (!PyErr_Occurred() && !slots_match(first))
        PyErr_Format(PyExc_ImportError,
                     "goloop: asyncio.transports.%s of this Python has an unknown layout; use a "
                     "released CPython from 3.11 on, not a debug build",
                     base);
    else if (first != NULL && other != NULL)
        bases = PyTuple_Pack(2, first, other);
    else if (first != NULL && second == NULL)
        bases = PyTuple_Pack(1, first);
    if (bases != NULL && /* lint: allow exception-set: there is none */
        (gl_type_make(&type, module, spec, bases) < 0 || add_shared_members(type, max_size) < 0))
        Py_CLEAR(type);
    Py_XDECREF(bases);
    Py_XDECREF(other);
    Py_XDECREF(first);
    return type;
}
