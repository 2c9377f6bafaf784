/*
 * native_rule.c: the native rule, which decides whether C may act in place of an object's methods.
 *
 * A program can replace methods: by a subclass, by a function or a property that it sets on the
 * class or the instance, or by a wrapper.  asyncio would call them, so C acts in place of a method
 * only if asyncio would call the stdlib's own:
 *
 *     gl_replaced_methods(rule, class)          methods of the class that are not the original ones
 *     gl_object_replaced_methods(rule, object)  these, and those that the object's own dict has
 *     gl_is_native(rule, object)                the class is the rule's, and none is replaced
 *     gl_is_native_per_call(rule, object)       the same, cheaper, for objects used per packet
 *
 * No other file decides this.  docs/internals/native-rule.md lists the methods of each rule and
 * the code that uses it.
 *
 * An original is a function of the class's own module, or a method of a C class that it derives
 * from, under its own name, so that replacements made before goloop was imported are detected too.
 * The result for a class is cached with its version tag, which CPython resets when the class or one
 * of its bases changes, and gives to no other class.  A tag of 0, of a class that was changed too
 * often, is not cached: then each call inspects the class.
 */
#include "state/state.h"

#if GL_GET_METHOD_IS_INTERNAL
/* Looks a method up for a call.  1: *method is a function of the class, a new reference, and the
 * object has no such attribute of its own; 0: *method is any other attribute, or NULL, and an
 * exception is set. */
PyAPI_FUNC(int) _PyObject_GetMethod(PyObject *o, PyObject *name, PyObject **method);
#endif

/* The rules: the methods that a program may replace, and the attributes that C reads and writes in
 * the object itself, because the class defines none of these names. */
static const struct {
    const char *origin; /* the module of the class's functions; NULL: its methods are C's */
    const char *methods[GL_RULE_METHODS];
    const char *attributes[GL_RULE_ATTRIBUTES];
    const char *property; /* a property whose function is an original, or NULL */
} rules[GL_RULES] = {
    /* In the order of the bits in state.h. */
    [GL_RULE_LOOP] = {NULL, {"call_soon", "is_running", "call_at", "create_future"}},
    [GL_RULE_ASYNCIO_LOOP] = {"asyncio.base_events", {"create_task"}},
    [GL_RULE_HANDLE] = {"asyncio.events", {"_run", "cancel", "cancelled"}},
    [GL_RULE_TIMER_HANDLE] = {"asyncio.events", {"_run", "cancel", "cancelled"}},
    [GL_RULE_SOCKET] = {"socket",
                        {"recv", "recv_into", "send", "fileno", "sendmsg", "shutdown", "recvfrom",
                         "sendto", "accept"}},
    [GL_RULE_SSL_OBJECT] = {"ssl", {"do_handshake", "read", "write"}},
    [GL_RULE_TLS_TRANSPORT] = {"asyncio.sslproto", {"write"}},
    [GL_RULE_STREAM_PROTOCOL] = {"asyncio.streams",
                                 {"data_received"},
                                 {"_stream_reader_wr"},
                                 "_stream_reader"},
    [GL_RULE_STREAM_READER] = {"asyncio.streams",
                               {"feed_data", "_wakeup_waiter"},
                               {"_buffer", "_eof", "_limit", "_paused", "_transport", "_waiter"}},
};

/* Interns up to `max` names into `strings`; the first NULL ends them.  -1 with MemoryError. */
static int
intern_names(PyObject **strings, const char *const *names, int max)
{
    for (int i = 0; i < max && names[i] != NULL; i++) {
        strings[i] = PyUnicode_InternFromString(names[i]);
        if (strings[i] == NULL)
            return -1;
    }
    return 0;
}

GL_PRIVATE int
gl_rule_set_class(enum gl_rule rule, PyObject *cls)
{
    struct gl_rule_class *r = &G.rule[rule];
    if (!PyType_Check(cls)) {
        PyErr_Format(PyExc_TypeError, "a rule needs a class, got %R", cls);
        return -1;
    }
    if (intern_names(r->method, rules[rule].methods, GL_RULE_METHODS) < 0 ||
        intern_names(r->attribute, rules[rule].attributes, GL_RULE_ATTRIBUTES) < 0 ||
        intern_names(&r->property, &rules[rule].property, 1) < 0)
        return -1;
    r->getter = gl_slot_offset((PyObject *)&PyProperty_Type, "fget");
    if (rules[rule].origin != NULL) {
        PyObject *origin = PyImport_ImportModule(rules[rule].origin);
        if (origin == NULL)
            return -1;
        r->globals = Py_NewRef(PyModule_GetDict(origin));
        Py_DECREF(origin);
    }
    r->type = (PyTypeObject *)Py_NewRef(cls);
    return 0;
}

/* Returns true if `found`, the attribute `name` of a class (NULL: it has none), is the original
 * method of the rule `r`. */
static bool
is_original(const struct gl_rule_class *r, PyTypeObject *type, PyObject *name, PyObject *found)
{
    PyObject *own = NULL;
    if (found != NULL && PyFunction_Check(found) && PyFunction_GET_GLOBALS(found) == r->globals)
        own = ((PyCodeObject *)PyFunction_GET_CODE(found))->co_name;
    else if (found != NULL && PyObject_TypeCheck(found, &PyMethodDescr_Type) &&
             PyType_IsSubtype(type, PyDescr_TYPE(found)))
        own = PyDescr_NAME(found);
    return own != NULL && PyUnicode_Compare(own, name) == 0;
}

/* Returns the attribute of a class or its bases as a new reference; NULL, without an exception, if
 * there is none.  Runs no Python. */
static PyObject *
class_attribute(PyTypeObject *type, PyObject *name)
{
#ifdef GL_FREE_THREADED
    return _PyType_LookupRef(type, name);
#else
    return Py_XNewRef(_PyType_Lookup(type, name));
#endif
}

/* Returns true if the class has the original property of the rule, or if the rule has none.  Runs
 * no Python. */
static bool
has_original_property(const struct gl_rule_class *r, PyTypeObject *type)
{
    if (r->property == NULL)
        return true;
    PyObject *found = class_attribute(type, r->property);
    bool original = false;
    if (found != NULL && Py_IS_TYPE(found, &PyProperty_Type) && r->getter >= 0) {
        PyObject *getter = *(PyObject **)((char *)found + r->getter);
        original = is_original(r, type, r->property, getter);
    }
    Py_XDECREF(found);
    return original;
}

/* Returns true if the objects of the class have the attributes of the rule in themselves: the class
 * defines none of them, and stores attributes in the usual way.  Runs no Python. */
static bool
has_own_attributes(const struct gl_rule_class *r, PyTypeObject *type)
{
    if (r->attribute[0] == NULL)
        return true;
    bool own = type->tp_setattro == PyObject_GenericSetAttr;
    for (int i = 0; own && i < GL_RULE_ATTRIBUTES && r->attribute[i]; i++) {
        PyObject *found = class_attribute(type, r->attribute[i]);
        own = found == NULL;
        Py_XDECREF(found);
    }
    return own;
}

/* Inspects the class and returns the result of gl_replaced_methods(): the bits of replaced methods,
 * or GL_NOT_OURS if the class does not derive from the rule's, has its own attribute lookup
 * (`__getattribute__`, `__getattr__`), or the rule has no class yet.  Caches only bits, and only
 * under a version tag other than 0.  Rare, so it is not inlined.  Runs no Python. */
static __attribute__((noinline)) unsigned
inspect_class(enum gl_rule rule, PyTypeObject *type)
{
    const struct gl_rule_class *r = &G.rule[rule];
    if (r->type == NULL || !PyType_IsSubtype(type, r->type) ||
        type->tp_getattro != PyObject_GenericGetAttr)
        return GL_NOT_OURS;
    unsigned replaced = 0;
    unsigned tag = 0;
    for (int i = 0; i < GL_RULE_METHODS && r->method[i]; i++) {
        PyObject *found = class_attribute(type, r->method[i]);
        if (i == 0)
            tag = GL_READ(type->tp_version_tag);
        if (!is_original(r, type, r->method[i], found))
            replaced |= 1u << i;
        Py_XDECREF(found);
    }
    if (!has_original_property(r, type) || !has_own_attributes(r, type))
        replaced |= GL_OWN_ATTRIBUTES;
    if (tag != 0 && tag == GL_READ(type->tp_version_tag))
        __atomic_store_n(&G.rule[rule].seen, (uint64_t)tag << 16 | replaced, __ATOMIC_RELAXED);
    return replaced;
}

GL_PRIVATE_INLINE unsigned
gl_replaced_methods(enum gl_rule rule, PyTypeObject *type)
{
    unsigned tag = GL_READ(type->tp_version_tag);
    uint64_t seen = __atomic_load_n(&G.rule[rule].seen, __ATOMIC_RELAXED);
    if (tag != 0 && tag == seen >> 16)
        return (unsigned)(seen & 0xFFFF);
    return inspect_class(rule, type);
}

GL_PRIVATE unsigned
gl_object_replaced_methods(enum gl_rule rule, PyObject *o)
{
    PyObject *const *method = G.rule[rule].method;
    unsigned replaced = gl_replaced_methods(rule, Py_TYPE(o));
    if (replaced == GL_NOT_OURS || Py_TYPE(o)->tp_dictoffset == 0)
        return replaced;
    PyObject *own = PyObject_GenericGetDict(o, NULL);
    for (int i = 0; i < GL_RULE_METHODS && method[i]; i++)
        if (own == NULL || PyDict_Contains(own, method[i]) != 0)
            replaced |= 1u << i;
    Py_XDECREF(own);
    PyErr_Clear();
    return replaced;
}

GL_PRIVATE bool
gl_is_native(enum gl_rule rule, PyObject *o)
{
    return Py_TYPE(o) == G.rule[rule].type && gl_object_replaced_methods(rule, o) == 0;
}

GL_PRIVATE_INLINE bool
gl_is_native_per_call(enum gl_rule rule, PyObject *o)
{
    /* Lookups, one for each method of the rule, take the place of the object's dict, which CPython
     * would have to create.  The class is known to have functions under these names, and to look
     * attributes up in the usual way, so no Python runs. */
    const struct gl_rule_class *r = &G.rule[rule];
    if (Py_TYPE(o) != r->type || gl_replaced_methods(rule, r->type) != 0)
        return false;
    for (int i = 0; i < GL_RULE_METHODS && r->method[i] != NULL; i++) {
        PyObject *found = NULL;
        int is_function_of_class = _PyObject_GetMethod(o, r->method[i], &found);
        if (found == NULL)
            PyErr_Clear();
        Py_XDECREF(found);
        if (!is_function_of_class)
            return false;
    }
    return true;
}

/* _core.replaced_methods(sock): returns a new list of the names of socket methods that the program
 * has replaced, for Python, which chooses transports; all names for an object that is not a
 * socket.socket. */
static PyObject *
core_replaced_methods(PyObject *Py_UNUSED(module), PyObject *sock)
{
    PyObject *const *method = G.rule[GL_RULE_SOCKET].method;
    unsigned replaced = gl_object_replaced_methods(GL_RULE_SOCKET, sock); /* clears exceptions */
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < GL_RULE_METHODS && method[i]; i++)
        if ((replaced & 1u << i) && PyList_Append(names, method[i]) < 0)
            Py_CLEAR(names);
    return names;
}

static PyMethodDef native_functions[] = {
    {"replaced_methods", core_replaced_methods, METH_O,
     PyDoc_STR("replaced_methods(sock): which methods are not socket.socket's own, by name.")},
    {NULL, NULL, 0, NULL},
};

GL_PRIVATE int
gl_native_init(PyObject *module)
{
    if (gl_rule_set_class(GL_RULE_ASYNCIO_LOOP, G.asyncio_BaseEventLoop) < 0 ||
        gl_rule_set_class(GL_RULE_HANDLE, G.asyncio_Handle) < 0 ||
        gl_rule_set_class(GL_RULE_TIMER_HANDLE, G.asyncio_TimerHandle) < 0 ||
        gl_rule_set_class(GL_RULE_SOCKET, G.socket_socket) < 0 ||
        gl_rule_set_class(GL_RULE_STREAM_PROTOCOL, G.asyncio_StreamReaderProtocol) < 0 ||
        gl_rule_set_class(GL_RULE_STREAM_READER, G.asyncio_StreamReader) < 0)
        return -1;
    return PyModule_AddFunctions(module, native_functions);
}

/* ---- the scheduler --------------------------------------------------------------------- */

GL_PRIVATE_INLINE bool
gl_handles_are_hooked(void)
{
    /* A TimerHandle inherits what is put into Handle, and may have its own. */
    return gl_replaced_methods(GL_RULE_TIMER_HANDLE, G.rule[GL_RULE_TIMER_HANDLE].type) & 1;
}

/* Returns true if the compiler made the code of a function.  ddtrace replaces the code in place,
 * which changes neither the function nor its class; such code refers to its wrapper by a constant,
 * and a compiler makes no constant that can be called. */
static bool
is_compiled(PyObject *function)
{
    PyObject *constants = ((PyCodeObject *)PyFunction_GET_CODE(function))->co_consts;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); i++)
        if (PyCallable_Check(PyTuple_GET_ITEM(constants, i)))
            return false;
    return true;
}

GL_PRIVATE bool
gl_asyncio_create_task_replaced(void)
{
    return gl_replaced_methods(GL_RULE_ASYNCIO_LOOP, G.rule[GL_RULE_ASYNCIO_LOOP].type) != 0 ||
           (PyFunction_Check(G.asyncio_create_task) && !is_compiled(G.asyncio_create_task));
}

GL_PRIVATE bool
gl_loop_has_own(gl_loop *loop, unsigned methods)
{
    return ((gl_replaced_methods(GL_RULE_LOOP, Py_TYPE(loop)) | loop->replaced) & methods) != 0;
}

GL_PRIVATE_INLINE gl_loop *
gl_loop_if_native(PyObject *loop)
{
    unsigned scheduling = GL_OWN_CALL_SOON | GL_OWN_IS_RUNNING;
    if (loop == NULL || /* a future that is being initialised again */
        (gl_replaced_methods(GL_RULE_LOOP, Py_TYPE(loop)) & scheduling) != 0)
        return NULL;
    gl_loop *self = (gl_loop *)loop;
    if (self->debug || gl_handles_are_hooked() || self->closed ||
        (self->replaced & scheduling) != 0 || self->shared == NULL || gl_loop_is_foreign(self))
        return NULL;
    return self;
}

GL_PRIVATE void
gl_note_replaced(gl_loop *loop, PyObject *name, PyObject *value)
{
    PyObject *const *method = G.rule[GL_RULE_LOOP].method;
    for (unsigned i = 0; PyUnicode_Check(name) && i < GL_RULE_METHODS && method[i]; i++)
        if (PyUnicode_Compare(name, method[i]) == 0)
            loop->replaced =
                (uint8_t)((loop->replaced & ~(1u << i)) | (unsigned)(value != NULL) << i);
}
