/*
 * guard.c: makes every call from Python to an object of a loop take the loop's lock (lock.c), in a
 * build without the GIL.
 *
 * gl_guard_type() changes a new type that is not used yet:
 *
 *   methods     each descriptor gets another type: its call takes the lock and continues as
 *               before.  All calls pass through it: by the descriptor, by a stored bound
 *               method, by super()
 *   attributes  getter and setter take the lock; a member becomes an attribute with both
 *   tp_dealloc, tp_clear, tp_finalize: take the lock, for types with a deallocation that changes
 *               other objects (GL_GUARD_DEALLOC)
 *
 * The other slots of a type use GL_GUARD themselves.  Methods that need no lock (they use atomics
 * or the inbox), and those that take it in their own way, are named to gl_guard_type.
 *
 * A type and its descriptors live as long as the process and are made immortal: several threads
 * that count references to one object would wait for its cache line.
 */
#include "threads/threads.h"

#ifdef GL_FREE_THREADED

/* Returns the record of the guarded type from which the object's type derives; there is one. */
static const gl_guarded_type *
guarded_type(PyObject *self)
{
    for (int i = 0; i < G.guards.types; i++)
        if (PyObject_TypeCheck(self, G.guards.type[i].type))
            return &G.guards.type[i];
    Py_UNREACHABLE();
}

/* The head of every Future (tasks/layout.h). */
typedef struct {
    PyObject_HEAD
    PyObject *loop;
} future_head;

/* Returns the loop of an object (borrowed), or NULL if it has none yet.  `loop_offset` as in
 * gl_guard_type(). */
static inline gl_loop *
loop_of(PyObject *self, Py_ssize_t loop_offset)
{
    if (loop_offset == GL_OWNER_LOOP_FUTURE)
        return gl_as_loop(__atomic_load_n(&((future_head *)self)->loop, __ATOMIC_ACQUIRE));
    if (loop_offset == GL_OWNER_LOOP_NONE)
        return NULL;
    if (loop_offset == GL_OWNER_LOOP_ITSELF)
        return (gl_loop *)self;
    return __atomic_load_n(&((gl_owner_loop *)((char *)self + loop_offset))->loop,
                           __ATOMIC_ACQUIRE);
}

/* Takes the lock of self's loop; before the constructor has set one, the object's own lock. */
static inline void
guard_enter(gl_guard *guard, PyObject *self, Py_ssize_t loop_offset)
{
    gl_loop *loop = loop_of(self, loop_offset);
    if (loop == NULL) {
        gl_guard_begin_self(guard, self);
        loop = loop_of(self, loop_offset);
        if (loop == NULL)
            return;
        gl_guard_end(guard); /* the object's constructor ran in between */
        guard->begun = false;
    }
    gl_guard_begin(guard, loop);
}

/* Makes an object immortal and untracks it: no thread counts references to it any more. */
static void
make_immortal(PyObject *o)
{
    if (PyObject_IS_GC(o))
        PyObject_GC_UnTrack(o);
    o->ob_tid = 0;
    o->ob_ref_shared = 0;
    o->ob_ref_local = _Py_IMMORTAL_REFCNT_LOCAL;
}

/* ---- methods ------------------------------------------------------------------------------ */

/* The PyMethodDef of a guarded method with more fields; d_method of its descriptor points to it. */
typedef struct guarded_method {
    PyMethodDef def;
    vectorcallfunc call; /* the original: checks the arguments and calls */
    Py_ssize_t loop_offset;
} guarded_method;

/* The vectorcall of a guarded method: takes the lock of the first argument's loop and calls the
 * original.  Without an instance as first argument it takes no lock, and the original raises. */
static PyObject *
method_call(PyObject *descr, PyObject *const *args, size_t nargsf, PyObject *names)
{
    const guarded_method *m = (const guarded_method *)((PyMethodDescrObject *)descr)->d_method;
    GL_GUARD_LATER;
    if (PyVectorcall_NARGS(nargsf) > 0 && PyObject_TypeCheck(args[0], PyDescr_TYPE(descr)))
        guard_enter(&guard_here, args[0], m->loop_offset);
    return m->call(descr, args, nargsf, names);
}

/* Implements tp_descr_get: returns a bound method that calls the descriptor and so takes the lock.
 * CPython's builtin_function_or_method would call the C function directly.  Without an instance of
 * the type, the result is CPython's: the descriptor itself, or TypeError. */
static PyObject *
method_bind(PyObject *descr, PyObject *self, PyObject *type)
{
    if (self != NULL && PyObject_TypeCheck(self, PyDescr_TYPE(descr)))
        return PyMethod_New(descr, self);
    return PyMethodDescr_Type.tp_descr_get(descr, self, type);
}

/* CPython's method_descriptor with bound methods that call the descriptor.  Only a static type can
 * derive from it.  lint: allow mutable-static: written at import, before there is a descriptor */
static PyTypeObject method_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "method_descriptor",
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_base = &PyMethodDescr_Type,
    .tp_descr_get = method_bind,
};

/* Makes the calls of a method descriptor take the lock, by a definition that is never freed.  -1
 * with MemoryError. */
static int
guard_method(PyMethodDescrObject *descr, Py_ssize_t loop_offset)
{
    guarded_method *m = PyMem_RawMalloc(sizeof *m);
    if (m == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    *m = (guarded_method){*descr->d_method, descr->vectorcall, loop_offset};
    descr->d_method = &m->def;
    descr->vectorcall = method_call;
    Py_SET_TYPE((PyObject *)descr, &method_type);
    return 0;
}

/* ---- attributes ---------------------------------------------------------------------------- */

/* The definition of a guarded attribute. */
typedef struct guarded_attribute {
    PyGetSetDef def;           /* the guarded attribute */
    const PyGetSetDef *getset; /* the original; NULL for a member */
    PyMemberDef *member;       /* the original member, or NULL */
    Py_ssize_t loop_offset;
} guarded_attribute;

/* Getter of a guarded attribute: reads the original attribute or member with the lock; `closure` is
 * its guarded_attribute. */
static PyObject *
attribute_get(PyObject *self, void *closure)
{
    const guarded_attribute *a = closure;
    GL_GUARD_LATER;
    guard_enter(&guard_here, self, a->loop_offset);
    if (a->getset != NULL)
        return a->getset->get(self, a->getset->closure);
    return PyMember_GetOne((char *)self, a->member);
}

/* Setter of a guarded attribute: sets the original attribute or member with the lock. */
static int
attribute_set(PyObject *self, PyObject *value, void *closure)
{
    const guarded_attribute *a = closure;
    GL_GUARD_LATER;
    guard_enter(&guard_here, self, a->loop_offset);
    if (a->getset != NULL)
        return a->getset->set(self, value, a->getset->closure);
    return PyMember_SetOne((char *)self, a->member, value);
}

/* Makes the definition of a guarded attribute, which is never freed.  The caller sets `getset` or
 * `member`, the original.  NULL with MemoryError. */
static guarded_attribute *
attribute_new(const char *name, const char *doc, bool writable, Py_ssize_t loop_offset)
{
    guarded_attribute *a = PyMem_RawCalloc(1, sizeof *a);
    if (a == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    a->def = (PyGetSetDef){name, attribute_get, writable ? attribute_set : NULL, doc, a};
    a->loop_offset = loop_offset;
    return a;
}

/* Makes getter and setter of a descriptor take the lock, by a definition that is never freed.  -1
 * with MemoryError. */
static int
guard_getset(PyGetSetDescrObject *descr, Py_ssize_t loop_offset)
{
    const PyGetSetDef *old = descr->d_getset;
    guarded_attribute *a = attribute_new(old->name, old->doc, old->set != NULL, loop_offset);
    if (a == NULL)
        return -1;
    a->getset = old;
    descr->d_getset = &a->def;
    return 0;
}

/* Replaces a member of `type` by an attribute whose getter and setter take the lock. */
static int
guard_member(PyTypeObject *type, PyObject *name, PyMemberDescrObject *descr, Py_ssize_t loop_offset)
{
    PyMemberDef *m = descr->d_member;
    guarded_attribute *a = attribute_new(m->name, m->doc, !(m->flags & READONLY), loop_offset);
    if (a == NULL)
        return -1;
    a->member = m;
    PyObject *made = PyDescr_NewGetSet(type, &a->def);
    if (made == NULL)
        return -1;
    make_immortal(made);
    return PyObject_SetAttr((PyObject *)type, name, made);
}

/* ---- slots ------------------------------------------------------------------------------ */

/* tp_finalize of a guarded type: calls the original with the lock. */
static void
slot_finalize(PyObject *self)
{
    const gl_guarded_type *t = guarded_type(self);
    GL_GUARD(loop_of(self, t->loop_offset));
    t->finalize(self);
}

/* tp_clear of a guarded type: calls the original with the lock. */
static int
slot_clear(PyObject *self)
{
    const gl_guarded_type *t = guarded_type(self);
    GL_GUARD(loop_of(self, t->loop_offset));
    return t->clear(self);
}

/* tp_dealloc of a guarded type: calls the original with the lock, and keeps the loop alive
 * meanwhile.  A loop that is being freed has no other user, so its lock is not needed. */
static void
slot_dealloc(PyObject *self)
{
    const gl_guarded_type *t = guarded_type(self);
    gl_loop *kept = NULL;
    gl_loop *loop = NULL;
    if (t->loop_offset != GL_OWNER_LOOP_ITSELF)
        loop = loop_of(self, t->loop_offset);
    /* The deallocation drops a reference to the loop. */
    if (loop != NULL && !gl_loop_runs_here(loop))
        kept = (gl_loop *)Py_NewRef((PyObject *)loop);
    bool tracked = PyObject_GC_IsTracked(self);
    if (tracked)
        PyObject_GC_UnTrack(self); /* a collection may run during the wait */
    {
        GL_GUARD(loop);
        if (tracked)
            PyObject_GC_Track(self);
        t->dealloc(self);
    }
    Py_XDECREF((PyObject *)kept);
}

/* ---- a type --------------------------------------------------------------------------------- */

/* Returns true if the entry `name` of a type needs no guard: it is in the list `names`, or is a
 * special method, which is fixed when the type is made. */
static bool
needs_no_guard(const char *const *names, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    bool special = text != NULL && strncmp(text, "__", 2) == 0; /* fixed when the type is made */
    for (; !special && names != NULL && *names != NULL; names++)
        special = text != NULL && strcmp(*names, text) == 0;
    return special;
}

/* Guards one entry of a type's dict, if it is a method, an attribute or a member; does nothing for
 * other entries. */
static int
guard_entry(PyTypeObject *type, PyObject *name, PyObject *descr, Py_ssize_t loop_offset)
{
    if (Py_IS_TYPE(descr, &PyMethodDescr_Type))
        return guard_method((PyMethodDescrObject *)descr, loop_offset);
    if (Py_IS_TYPE(descr, &PyGetSetDescr_Type))
        return guard_getset((PyGetSetDescrObject *)descr, loop_offset);
    if (Py_IS_TYPE(descr, &PyMemberDescr_Type))
        return guard_member(type, name, (PyMemberDescrObject *)descr, loop_offset);
    return 0;
}

/* Guards all entries of a type's dict except `free_names` and special methods, makes methods and
 * attributes immortal, and lets `__del__` take the lock. */
static int
guard_entries(PyTypeObject *type, Py_ssize_t loop_offset, const char *const *free_names)
{
    PyObject *dict = PyType_GetDict(type), *name, *descr;
    int rc = dict == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; rc == 0 && PyDict_Next(dict, &i, &name, &descr);) {
        if (Py_IS_TYPE(descr, &PyMethodDescr_Type) || Py_IS_TYPE(descr, &PyGetSetDescr_Type))
            make_immortal(descr);
        /* Subclasses in Python call the function that the type's __del__ wraps, not the slot. */
        if (Py_IS_TYPE(descr, &PyWrapperDescr_Type) && type->tp_finalize != NULL &&
            ((PyWrapperDescrObject *)descr)->d_wrapped == (void *)type->tp_finalize)
            ((PyWrapperDescrObject *)descr)->d_wrapped = (void *)slot_finalize;
        if (!needs_no_guard(free_names, name))
            rc = guard_entry(type, name, descr, loop_offset);
    }
    Py_XDECREF(dict);
    return rc;
}

/* Creates a guarded copy of a base's descriptor; a new reference.  NULL without an exception if the
 * descriptor is neither a method nor an attribute. */
static PyObject *
guarded_copy(PyTypeObject *base, PyObject *descr, Py_ssize_t loop_offset)
{
    PyObject *made = NULL;
    if (Py_IS_TYPE(descr, &PyMethodDescr_Type))
        made = PyDescr_NewMethod(base, ((PyMethodDescrObject *)descr)->d_method);
    else if (Py_IS_TYPE(descr, &PyGetSetDescr_Type))
        made = PyDescr_NewGetSet(base, ((PyGetSetDescrObject *)descr)->d_getset);
    if (made != NULL && guard_entry(NULL, NULL, made, loop_offset) < 0)
        Py_CLEAR(made);
    return made;
}

GL_PRIVATE int
gl_guard_inherited(PyTypeObject *type, PyTypeObject *base, Py_ssize_t loop_offset)
{
    PyObject *own = PyType_GetDict(type);
    PyObject *inherited = PyType_GetDict(base);
    PyObject *name, *descr;
    int rc = own == NULL || inherited == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; rc == 0 && PyDict_Next(inherited, &i, &name, &descr);) {
        rc = 1;
        if (!needs_no_guard(NULL, name))
            rc = PyDict_Contains(own, name);
        if (rc == 0 && Py_IS_TYPE(descr, &PyMemberDescr_Type)) {
            rc = guard_member(type, name, (PyMemberDescrObject *)descr, loop_offset);
            continue;
        }
        PyObject *made = NULL;
        if (rc == 0)
            made = guarded_copy(base, descr, loop_offset);
        if (made != NULL) {
            make_immortal(made);
            rc = PyObject_SetAttr((PyObject *)type, name, made);
        } else if (rc >= 0) {
            rc = gl_error_status();
        }
    }
    Py_XDECREF(inherited);
    Py_XDECREF(own);
    return rc;
}

GL_PRIVATE int
gl_guard_type(PyTypeObject *type, Py_ssize_t loop_offset, const char *const *free_names,
              enum gl_guard_scope scope)
{
    if (G.guards.types == GL_GUARD_TYPES) {
        PyErr_SetString(PyExc_SystemError, "goloop: too many guarded types");
        return -1;
    }
    method_type.tp_getset =
        PyMethodDescr_Type.tp_getset; /* without them its __doc__ would be another */
    if (PyType_Ready(&method_type) < 0 || guard_entries(type, loop_offset, free_names) < 0)
        return -1;
    gl_guarded_type *t = &G.guards.type[G.guards.types];
    *t = (gl_guarded_type){type, loop_offset, type->tp_dealloc, type->tp_finalize, type->tp_clear};
    G.guards.types++;
    if (scope == GL_GUARD_DEALLOC) {
        G.guards.dealloc = slot_dealloc;
        type->tp_dealloc = slot_dealloc;
        if (t->finalize != NULL)
            type->tp_finalize = slot_finalize;
        if (t->clear != NULL)
            type->tp_clear = slot_clear;
    }
    PyType_Modified(type);
    make_immortal((PyObject *)type);
    return 0;
}

#endif /* GL_FREE_THREADED */
