/*
 * guard.c: every way from Python to an object of a loop takes the loop's lock (lock.c), in a
 * free-threaded build.
 *
 * gl_guard_type() changes a type that was made, and is not used yet:
 *
 *   methods     the function of each method descriptor becomes one of the thunks below, which
 *               takes the lock and calls it.  So all callers come by: a call through the
 *               descriptor, a bound method that somebody kept, super()
 *   attributes  getter and setter likewise; a member becomes an attribute with both
 *   tp_dealloc, tp_clear, tp_finalize: likewise, for types whose end changes what is not their
 *               own (GL_GUARD_ENDS)
 *
 * The other slots of a type say GL_GUARD themselves.  Methods that need no lock (what they use is
 * atomic, or the inbox), and those that take it in their own way, are named to gl_guard_type.
 *
 * A type and its descriptors live as long as the process and are made immortal: several threads
 * that count references to one object would wait for its cache line.
 */
#include "state/private.h"

#ifdef GL_FREE_THREADED

static const gl_guarded_type *
guarded_type(PyObject *self)
{
    for (int i = 0; i < G.guards.types; i++)
        if (PyObject_TypeCheck(self, G.guards.type[i].type))
            return &G.guards.type[i];
    Py_UNREACHABLE();
}

/* What every Future begins with (tasks/layout.h). */
typedef struct {
    PyObject_HEAD
    PyObject *loop;
} future_head;

static inline gl_loop *
loop_of(PyObject *self, Py_ssize_t home)
{
    if (home == GL_HOME_FUTURE)
        return gl_as_loop(__atomic_load_n(&((future_head *)self)->loop, __ATOMIC_ACQUIRE));
    if (home == GL_HOME_NONE)
        return NULL;
    if (home == GL_HOME_ITSELF)
        return (gl_loop *)self;
    return __atomic_load_n(&((gl_home *)((char *)self + home))->loop, __ATOMIC_ACQUIRE);
}

/* The lock of self's loop; while it has none, which is before its constructor has run, its own. */
static inline void
guard_enter(gl_guard *guard, PyObject *self, Py_ssize_t home)
{
    gl_loop *loop = loop_of(self, home);
    if (loop == NULL) {
        gl_guard_begin_self(guard, self);
        if ((loop = loop_of(self, home)) == NULL)
            return;
        gl_guard_end(guard); /* its constructor ran in between */
        guard->begun = false;
    }
    gl_guard_begin(guard, loop);
}

#define GUARDED(home)                                                                         \
    __attribute__((cleanup(gl_guard_end))) gl_guard guard = {.begun = false};                 \
    guard_enter(&guard, self, home)

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

/* For each way of passing arguments a row of functions: the one with number k calls what is noted
 * at k. */
#define SIXTEEN(X, h)                                                                         \
    X(h##0) X(h##1) X(h##2) X(h##3) X(h##4) X(h##5) X(h##6) X(h##7)                           \
    X(h##8) X(h##9) X(h##A) X(h##B) X(h##C) X(h##D) X(h##E) X(h##F)
#define ROW(X)                                                                                \
    SIXTEEN(X, 0) SIXTEEN(X, 1) SIXTEEN(X, 2) SIXTEEN(X, 3)                                   \
    SIXTEEN(X, 4) SIXTEEN(X, 5) SIXTEEN(X, 6) SIXTEEN(X, 7)

/* row: the kind's number; type: of the function; parameters behind self, and as they are passed */
#define THUNK(row, name, type, parameters, passed)                                            \
    static inline PyObject *name(int k, PyObject *self _ parameters)                          \
    {                                                                                         \
        const gl_guarded_method *m = &G.guards.method[row][k];                                \
        GUARDED(m->home);                                                               \
        return ((type)m->function)(self _ passed);                                            \
    }
#define _ ,
THUNK(0, call_noargs, PyCFunction, PyObject *none, none)
THUNK(1, call_onearg, PyCFunction, PyObject *arg, arg)
THUNK(2, call_fast, PyCFunctionFast, PyObject *const *args _ Py_ssize_t n, args _ n)
THUNK(3, call_fastkw, PyCFunctionFastWithKeywords,
      PyObject *const *args _ Py_ssize_t n _ PyObject *names, args _ n _ names)
THUNK(4, call_varargs, PyCFunctionWithKeywords, PyObject *args _ PyObject *kwargs,
      args _ kwargs)
THUNK(5, call_method, PyCMethod, PyObject *const *args _ Py_ssize_t n _ PyObject *names,
      m->defining _ args _ n _ names)
#undef _

#define NOARGS(k) static PyObject *noargs_##k(PyObject *s, PyObject *a) { return call_noargs(0x##k, s, a); }
#define ONEARG(k) static PyObject *onearg_##k(PyObject *s, PyObject *a) { return call_onearg(0x##k, s, a); }
#define FAST(k) static PyObject *fast_##k(PyObject *s, PyObject *const *a, Py_ssize_t n) { return call_fast(0x##k, s, a, n); }
#define FASTKW(k) static PyObject *fastkw_##k(PyObject *s, PyObject *const *a, Py_ssize_t n, PyObject *names) { return call_fastkw(0x##k, s, a, n, names); }
#define VARARGS(k) static PyObject *varargs_##k(PyObject *s, PyObject *a, PyObject *kw) { return call_varargs(0x##k, s, a, kw); }
#define METHOD(k) static PyObject *method_##k(PyObject *s, PyObject *const *a, Py_ssize_t n, PyObject *names) { return call_method(0x##k, s, a, n, names); }
ROW(NOARGS)
ROW(ONEARG)
ROW(FAST)
ROW(FASTKW)
ROW(VARARGS)
ROW(METHOD)

#define POINTER(k) (void (*)(void))noargs_##k,
static void (*const noargs_row[])(void) = {ROW(POINTER)};
#undef POINTER
#define POINTER(k) (void (*)(void))onearg_##k,
static void (*const onearg_row[])(void) = {ROW(POINTER)};
#undef POINTER
#define POINTER(k) (void (*)(void))fast_##k,
static void (*const fast_row[])(void) = {ROW(POINTER)};
#undef POINTER
#define POINTER(k) (void (*)(void))fastkw_##k,
static void (*const fastkw_row[])(void) = {ROW(POINTER)};
#undef POINTER
#define POINTER(k) (void (*)(void))varargs_##k,
static void (*const varargs_row[])(void) = {ROW(POINTER)};
#undef POINTER
#define POINTER(k) (void (*)(void))method_##k,
static void (*const method_row[])(void) = {ROW(POINTER)};
#undef POINTER

static const struct {
    int flags;
    void (*const *row)(void);
} rows[GL_GUARD_ROWS] = {
    {METH_NOARGS, noargs_row},
    {METH_O, onearg_row},
    {METH_FASTCALL, fast_row},
    {METH_FASTCALL | METH_KEYWORDS, fastkw_row},
    {METH_VARARGS | METH_KEYWORDS, varargs_row},
    {METH_METHOD | METH_FASTCALL | METH_KEYWORDS, method_row},
};

/* A guarded copy of a method of `defining`; NULL with an exception. */
static PyMethodDef *
guarded_method(const PyMethodDef *method, PyTypeObject *defining, Py_ssize_t home)
{
    for (int row = 0; row < GL_GUARD_ROWS; row++) {
        int flags = method->ml_flags;
        if (rows[row].flags != (flags == METH_VARARGS ? METH_O : flags)) /* both pass one object */
            continue;
        int k = G.guards.methods[row]++;
        PyMethodDef *def = k < GL_GUARD_METHODS ? PyMem_RawMalloc(sizeof *def) : NULL;
        if (def == NULL)
            break;
        *def = *method;
        G.guards.method[row][k] =
            (gl_guarded_method){(void (*)(void))def->ml_meth, defining, home};
        def->ml_meth = (PyCFunction)rows[row].row[k];
        def->ml_flags &= ~METH_METHOD;
        return def;
    }
    PyErr_Format(PyExc_SystemError, "goloop: no guard for %s", method->ml_name);
    return NULL;
}

static int
guard_method(PyMethodDescrObject *descr, Py_ssize_t home)
{
    PyMethodDef *def = guarded_method(descr->d_method, descr->d_common.d_type, home);
    if (def == NULL)
        return -1;
    descr->d_method = def;
    return 0;
}

/* ---- attributes ---------------------------------------------------------------------------- */

typedef struct guarded_attribute {
    PyGetSetDef def;          /* what Python sees */
    const PyGetSetDef *getset; /* what is behind, or */
    PyMemberDef *member;
    Py_ssize_t home;
} guarded_attribute;

static PyObject *
attribute_get(PyObject *self, void *closure)
{
    const guarded_attribute *a = closure;
    GUARDED(a->home);
    return a->getset != NULL ? a->getset->get(self, a->getset->closure)
                             : PyMember_GetOne((char *)self, a->member);
}

static int
attribute_set(PyObject *self, PyObject *value, void *closure)
{
    const guarded_attribute *a = closure;
    GUARDED(a->home);
    return a->getset != NULL ? a->getset->set(self, value, a->getset->closure)
                             : PyMember_SetOne((char *)self, a->member, value);
}

static guarded_attribute *
attribute_new(const char *name, const char *doc, bool writable, Py_ssize_t home)
{
    guarded_attribute *a = PyMem_RawCalloc(1, sizeof *a);
    if (a == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    a->def = (PyGetSetDef){name, attribute_get, writable ? attribute_set : NULL, doc, a};
    a->home = home;
    return a;
}

static int
guard_getset(PyGetSetDescrObject *descr, Py_ssize_t home)
{
    const PyGetSetDef *old = descr->d_getset;
    guarded_attribute *a = attribute_new(old->name, old->doc, old->set != NULL, home);
    if (a == NULL)
        return -1;
    a->getset = old;
    descr->d_getset = &a->def;
    return 0;
}

static int
guard_member(PyTypeObject *type, PyObject *name, PyMemberDescrObject *descr, Py_ssize_t home)
{
    PyMemberDef *m = descr->d_member;
    guarded_attribute *a = attribute_new(m->name, m->doc, !(m->flags & READONLY), home);
    if (a == NULL)
        return -1;
    a->member = m;
    PyObject *made = PyDescr_NewGetSet(type, &a->def);
    int rc = made ? PyObject_SetAttr((PyObject *)type, name, made) : -1;
    Py_XDECREF(made);
    return rc;
}

/* ---- slots ------------------------------------------------------------------------------------ */

static void
slot_finalize(PyObject *self)
{
    const gl_guarded_type *t = guarded_type(self);
    GL_GUARD(loop_of(self, t->home));
    t->finalize(self);
}

static int
slot_clear(PyObject *self)
{
    const gl_guarded_type *t = guarded_type(self);
    GL_GUARD(loop_of(self, t->home));
    return t->clear(self);
}

/* Of the loop itself nobody else has anything any more. */
static void
slot_dealloc(PyObject *self)
{
    const gl_guarded_type *t = guarded_type(self);
    gl_loop *loop = t->home == GL_HOME_ITSELF ? NULL : loop_of(self, t->home), *kept = NULL;
    /* The object lets go of it. */
    if (loop != NULL && !gl_loop_runs_here(loop))
        kept = (gl_loop *)Py_NewRef((PyObject *)loop);
    bool tracked = PyObject_GC_IsTracked(self);
    if (tracked)
        PyObject_GC_UnTrack(self); /* the collector may come while we wait */
    {
        GL_GUARD(loop);
        if (tracked)
            PyObject_GC_Track(self);
        t->dealloc(self);
    }
    Py_XDECREF((PyObject *)kept);
}

/* ---- what is inherited ---------------------------------------------------------------------- */

/* What `type` is to have in the place of a base's descriptor; NULL with or without an exception. */
static PyObject *
guarded_copy(PyTypeObject *type, PyTypeObject *base, PyObject *descr, Py_ssize_t home)
{
    if (Py_IS_TYPE(descr, &PyMethodDescr_Type)) {
        PyMethodDef *def = guarded_method(((PyMethodDescrObject *)descr)->d_method, base, home);
        return def ? PyDescr_NewMethod(type, def) : NULL;
    }
    if (!Py_IS_TYPE(descr, &PyGetSetDescr_Type))
        return NULL;
    const PyGetSetDef *old = ((PyGetSetDescrObject *)descr)->d_getset;
    guarded_attribute *a = attribute_new(old->name, old->doc, old->set != NULL, home);
    if (a == NULL)
        return NULL;
    a->getset = old;
    return PyDescr_NewGetSet(type, &a->def);
}

GL_PRIVATE int
gl_guard_inherited(PyTypeObject *type, PyTypeObject *base, Py_ssize_t home)
{
    PyObject *own = PyType_GetDict(type), *inherited = PyType_GetDict(base);
    PyObject *items = own && inherited ? PyDict_Items(inherited) : NULL;
    int rc = items == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0), *made = NULL;
        rc = PyDict_Contains(own, name);
        if (rc == 0)
            made = guarded_copy(type, base, PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1), home);
        if (made != NULL) {
            make_immortal(made);
            rc = PyObject_SetAttr((PyObject *)type, name, made);
        } else if (rc >= 0) {
            rc = PyErr_Occurred() ? -1 : 0;
        }
    }
    Py_XDECREF(items);
    Py_XDECREF(inherited);
    Py_XDECREF(own);
    return rc;
}

/* ---- a type --------------------------------------------------------------------------------- */

static bool
is_free(const char *const *names, PyObject *name)
{
    const char *text = PyUnicode_AsUTF8(name);
    bool special = text != NULL && strncmp(text, "__", 2) == 0; /* fixed when the type is made */
    for (; !special && names != NULL && *names != NULL; names++)
        special = text != NULL && strcmp(*names, text) == 0;
    return special;
}

static int
guard_entry(PyTypeObject *type, PyObject *name, PyObject *descr, Py_ssize_t home)
{
    if (Py_IS_TYPE(descr, &PyMethodDescr_Type))
        return guard_method((PyMethodDescrObject *)descr, home);
    if (Py_IS_TYPE(descr, &PyGetSetDescr_Type))
        return guard_getset((PyGetSetDescrObject *)descr, home);
    if (Py_IS_TYPE(descr, &PyMemberDescr_Type))
        return guard_member(type, name, (PyMemberDescrObject *)descr, home);
    return 0;
}

static int
guard_entries(PyTypeObject *type, Py_ssize_t home, const char *const *free_names)
{
    PyObject *dict = PyType_GetDict(type), *items = dict ? PyDict_Items(dict) : NULL;
    int rc = items == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *name = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 0);
        PyObject *descr = PyTuple_GET_ITEM(PyList_GET_ITEM(items, i), 1);
        if (!is_free(free_names, name))
            rc = guard_entry(type, name, descr, home);
    }
    Py_CLEAR(items);
    if (rc == 0 && (items = PyDict_Values(dict)) == NULL)
        rc = -1;
    for (Py_ssize_t i = 0; rc == 0 && i < PyList_GET_SIZE(items); i++) {
        PyObject *descr = PyList_GET_ITEM(items, i);
        if (Py_IS_TYPE(descr, &PyMethodDescr_Type) || Py_IS_TYPE(descr, &PyGetSetDescr_Type))
            make_immortal(descr);
    }
    Py_XDECREF(items);
    Py_XDECREF(dict);
    return rc;
}

GL_PRIVATE int
gl_guard_type(PyTypeObject *type, Py_ssize_t home, const char *const *free_names,
              enum gl_guard_how how)
{
    if (G.guards.types == GL_GUARD_TYPES) {
        PyErr_SetString(PyExc_SystemError, "goloop: too many guarded types");
        return -1;
    }
    if (guard_entries(type, home, free_names) < 0)
        return -1;
    gl_guarded_type *t = &G.guards.type[G.guards.types];
    *t = (gl_guarded_type){type, home, type->tp_dealloc, type->tp_finalize, type->tp_clear};
    G.guards.types++;
    if (how & GL_GUARD_ENDS)
        type->tp_dealloc = G.guards.dealloc = slot_dealloc;
    if ((how & GL_GUARD_ENDS) && t->finalize != NULL)
        type->tp_finalize = slot_finalize;
    if ((how & GL_GUARD_ENDS) && t->clear != NULL)
        type->tp_clear = slot_clear;
    PyType_Modified(type);
    make_immortal((PyObject *)type);
    return 0;
}

#endif /* GL_FREE_THREADED */
