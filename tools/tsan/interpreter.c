/*
 * interpreter.c: reports the synchronisation of a free-threaded interpreter to ThreadSanitizer.
 *
 * The file is a part of goloop._core only if GOLOOP_SANITIZE is "thread"
 * (build_backend/goloop_build/commands.py).  The interpreter is not built with ThreadSanitizer, so
 * ThreadSanitizer does not see its locks, its allocator and its garbage collector.  For code in
 * _core, the file reports:
 *
 *   critical sections  A thread in a critical section may release and acquire its lock in any call
 *                      of Python's C API, and between two functions of _core that the interpreter
 *                      calls.  At each of these points the thread releases and acquires, for
 *                      ThreadSanitizer, the locks of all its sections.  The report is exact enough:
 *                      it orders no threads that are in sections of other locks, or in no section.
 *   PyMutex            The compiler instruments the fast path, which is inlined in _core; the
 *                      slow path, which may block, is wrapped here.
 *   memory             PyMem_* call malloc and free, which ThreadSanitizer intercepts.
 *   objects            The access history of objects of _core's types is cleared when they are
 *                      made and when they are freed, because reference counts order the earlier
 *                      accesses of the interpreter's threads.
 *
 * Calls of the API reach this file because the linker gets --wrap for each name in a CALL or a
 * __wrap_.  If a function that releases sections has no CALL, ThreadSanitizer reports false races.
 *
 * x86-64 only.
 */
#include <Python.h>
#include <stdlib.h>
#include <string.h>

/* Functions that run on entry to the interpreter, or on return, must not be instrumented. */
#define UNSEEN __attribute__((no_sanitize("thread"), no_instrument_function, used))
#define HIDDEN __attribute__((visibility("hidden")))

void __tsan_acquire(void *at);
void __tsan_release(void *at);

/* A thread's state: the locks of its critical sections, and the return address of each API call. */
static __thread struct {
    PyMutex *lock[200];
    int locks;
    void **back;
    size_t calls, room;
} here;

static void UNSEEN
release_all(void)
{
    for (int i = 0; i < here.locks; i++)
        if (here.lock[i] != NULL)
            __tsan_release(here.lock[i]);
}

static void UNSEEN
acquire_all(void)
{
    for (int i = 0; i < here.locks; i++)
        if (here.lock[i] != NULL)
            __tsan_acquire(here.lock[i]);
}

/* ---- functions of _core, by -finstrument-functions ------------------------------------------- */

void HIDDEN UNSEEN
__cyg_profile_func_enter(void *function, void *from)
{
    (void)function, (void)from;
    acquire_all();
}

void HIDDEN UNSEEN
__cyg_profile_func_exit(void *function, void *from)
{
    (void)function, (void)from;
    release_all();
}

/* ---- calls of the API ------------------------------------------------------------------------ */

void HIDDEN UNSEEN
goloop_tsan_leave(void *back)
{
    if (here.calls == here.room) {
        size_t room = here.room ? 2 * here.room : 1000;
        void **more = realloc(here.back, room * sizeof *more);
        if (more == NULL)
            abort();
        here.back = more;
        here.room = room;
    }
    here.back[here.calls++] = back;
    release_all();
}

void HIDDEN UNSEEN *
goloop_tsan_return(void)
{
    acquire_all();
    return here.back[--here.calls];
}

/* Calls the function between the two above, with any arguments, also on the stack: the return
 * address of the call is in the slot of the caller's return address. */
#define CALL(name)                                                                            \
    __asm__(".text\n.hidden __wrap_" #name "\n.globl __wrap_" #name "\n"                      \
            ".type __wrap_" #name ", @function\n__wrap_" #name ":\n"                          \
            "subq $200, %rsp\n"                                                               \
            "movq %rdi, 0(%rsp)\nmovq %rsi, 8(%rsp)\nmovq %rdx, 16(%rsp)\n"                   \
            "movq %rcx, 24(%rsp)\nmovq %r8, 32(%rsp)\nmovq %r9, 40(%rsp)\n"                   \
            "movq %rax, 48(%rsp)\n"                                                           \
            "movups %xmm0, 56(%rsp)\nmovups %xmm1, 72(%rsp)\n"                                \
            "movups %xmm2, 88(%rsp)\nmovups %xmm3, 104(%rsp)\n"                               \
            "movq 200(%rsp), %rdi\n"                                                          \
            "call goloop_tsan_leave\n"                                                        \
            "movq 0(%rsp), %rdi\nmovq 8(%rsp), %rsi\nmovq 16(%rsp), %rdx\n"                   \
            "movq 24(%rsp), %rcx\nmovq 32(%rsp), %r8\nmovq 40(%rsp), %r9\n"                   \
            "movq 48(%rsp), %rax\n"                                                           \
            "movups 56(%rsp), %xmm0\nmovups 72(%rsp), %xmm1\n"                                \
            "movups 88(%rsp), %xmm2\nmovups 104(%rsp), %xmm3\n"                               \
            "addq $208, %rsp\n"                                                               \
            ".weak __real_" #name "\n" /* missing in some Python versions */                  \
            "call __real_" #name "@PLT\n"                                                     \
            "subq $48, %rsp\n"                                                                \
            "movq %rax, 0(%rsp)\nmovq %rdx, 8(%rsp)\nmovups %xmm0, 16(%rsp)\n"                \
            "call goloop_tsan_return\n"                                                       \
            "movq %rax, %r11\n"                                                               \
            "movq 0(%rsp), %rax\nmovq 8(%rsp), %rdx\nmovups 16(%rsp), %xmm0\n"                \
            "addq $48, %rsp\n"                                                                \
            "jmp *%r11\n"                                                                     \
            ".size __wrap_" #name ", .-__wrap_" #name "\n");

/* All functions that may run Python code, or block. */
CALL(PyArg_ParseTuple)
CALL(PyArg_ParseTupleAndKeywords)
CALL(PyBuffer_Release)
CALL(PyBytes_FromObject)
CALL(PyCFunction_GetFunction) /* called before _imp.acquire_lock(), which may block */
CALL(PyContext_Copy)
CALL(PyContext_CopyCurrent)
CALL(PyContext_Enter)
CALL(PyContext_Exit)
CALL(PyDict_DelItem)
CALL(PyDict_GetItemWithError)
CALL(PyDict_SetItem)
CALL(PyDict_SetItemString)
CALL(PyErr_CheckSignals)
CALL(PyErr_Clear)
CALL(PyErr_ExceptionMatches)
CALL(PyErr_Format)
CALL(PyErr_GivenExceptionMatches)
CALL(PyErr_ResourceWarning)
CALL(PyErr_Restore)
CALL(PyErr_SetObject)
CALL(PyErr_SetRaisedException)
CALL(PyErr_SetString)
CALL(PyErr_WarnFormat)
CALL(PyErr_WriteUnraisable)
CALL(PyEval_RestoreThread)
CALL(PyEval_SaveThread)
CALL(PyGILState_Ensure)
CALL(PyGILState_Release)
CALL(PyImport_ImportModule)
CALL(PyIter_Send)
CALL(PyList_Append)
CALL(PyList_SetSlice)
CALL(PyMember_SetOne)
CALL(PyMemoryView_FromObject)
CALL(PyNumber_Add)
CALL(PyNumber_AsSsize_t)
CALL(PyNumber_Long)
CALL(PyObject_AsFileDescriptor)
CALL(PyObject_Call)
CALL(PyObject_CallFinalizerFromDealloc)
CALL(PyObject_CallFunction)
CALL(PyObject_CallFunctionObjArgs)
CALL(PyObject_CallMethod)
CALL(PyObject_CallMethodObjArgs)
CALL(PyObject_CallNoArgs)
CALL(PyObject_CallOneArg)
CALL(PyObject_ClearWeakRefs)
CALL(PyObject_GetAttr)
CALL(PyObject_GetAttrString)
CALL(PyObject_GetBuffer)
CALL(PyObject_GetIter)
CALL(PyObject_IsInstance)
CALL(PyObject_IsTrue)
CALL(PyObject_Repr)
CALL(PyObject_RichCompareBool)
CALL(PyObject_SetAttr)
CALL(PyObject_SetAttrString)
CALL(PyObject_Size)
CALL(PyObject_Str)
CALL(PyObject_Vectorcall)
CALL(PyObject_VectorcallMethod)
CALL(PySequence_Contains)
CALL(PySequence_Fast)
CALL(PySequence_GetSlice)
CALL(PySequence_Tuple)
CALL(PySet_Add)
CALL(PySet_Contains)
CALL(PySet_New)
CALL(PySys_Audit)
CALL(PyThread_acquire_lock)
CALL(PyThread_acquire_lock_timed)
CALL(PyType_IsSubtype)
CALL(PyUnicode_FSConverter)
CALL(PyUnicode_FromFormat)
CALL(PyUnstable_GC_VisitObjects)
CALL(Py_BuildValue)
CALL(_PyTrash_thread_destroy_chain)
CALL(_Py_DecRefShared)
CALL(_Py_MergeZeroLocalRefcount)

/* ---- critical sections, mutexes -------------------------------------------------------------- */

void __real_PyCriticalSection_Begin(PyCriticalSection *section, PyObject *o);
void __real_PyCriticalSection_End(PyCriticalSection *section);

/* Records a critical section, also one that _core begins itself; NULL for a lock's second section. */
void HIDDEN UNSEEN
goloop_tsan_begun(PyMutex *mutex)
{
    if (here.locks == sizeof here.lock / sizeof *here.lock)
        abort();
    here.lock[here.locks++] = mutex;
    acquire_all();
}

void HIDDEN UNSEEN
__wrap_PyCriticalSection_Begin(PyCriticalSection *section, PyObject *o)
{
    release_all(); /* the call may block, and releases all sections while it does */
    __real_PyCriticalSection_Begin(section, o);
    goloop_tsan_begun(section->_cs_mutex);
}

void HIDDEN UNSEEN
__wrap_PyCriticalSection_End(PyCriticalSection *section)
{
    release_all();
    here.locks--;
    __real_PyCriticalSection_End(section);
    acquire_all();
}

/* Python's header calls these functions if a mutex is locked, or another thread waits for it. */
#undef PyMutex_Lock
#undef PyMutex_Unlock
void __real_PyMutex_Lock(PyMutex *mutex);
void __real_PyMutex_Unlock(PyMutex *mutex);

void HIDDEN UNSEEN
__wrap_PyMutex_Lock(PyMutex *mutex)
{
    release_all();
    __real_PyMutex_Lock(mutex);
    __tsan_acquire(mutex);
    acquire_all();
}

void HIDDEN UNSEEN
__wrap_PyMutex_Unlock(PyMutex *mutex)
{
    __tsan_release(mutex);
    __real_PyMutex_Unlock(mutex);
}

/* ---- memory ------------------------------------------------------------------------------------ */

#define MEMORY(name)                                                                          \
    void HIDDEN *__wrap_##name##Malloc(size_t n) { return malloc(n ? n : 1); }                \
    void HIDDEN *__wrap_##name##Calloc(size_t k, size_t n) { return calloc(k ? k : 1, n ? n : 1); } \
    void HIDDEN *__wrap_##name##Realloc(void *p, size_t n) { return realloc(p, n ? n : 1); }  \
    void HIDDEN __wrap_##name##Free(void *p) { free(p); }
MEMORY(PyMem_)
MEMORY(PyMem_Raw)

/* ---- objects of _core's types ------------------------------------------------------------------ */

void __tsan_java_alloc(unsigned long at, unsigned long size);
void __tsan_java_free(unsigned long at, unsigned long size);

static unsigned long UNSEEN
size_of(PyObject *o)
{
    PyTypeObject *type = Py_TYPE(o);
    size_t size = (size_t)type->tp_basicsize;
    if (type->tp_itemsize > 0)
        size += (size_t)(Py_SIZE(o) * type->tp_itemsize);
    return size & ~(size_t)7;
}

/* Clears the access history of memory, so that earlier accesses race with no later access. */
static void UNSEEN
forget_memory(void *at, unsigned long size)
{
    /* The functions for Java's heaps mark memory as new and as free. */
    __tsan_java_alloc((unsigned long)at, size);
    __tsan_java_free((unsigned long)at, size);
}

static void UNSEEN
forget(PyObject *o)
{
    forget_memory(o, size_of(o));
}

/* The original slots of types, which the functions below replace. */
static struct {
    PyTypeObject *type;
    initproc init;
    destructor dealloc;
    destructor finalize;
    inquiry clear;
} slots[100];
static int types;

/* Returns a slot of the innermost base that defines the slot. */
#define SLOT(o, slot)                                                                         \
    __extension__({                                                                           \
        int found = -1;                                                                       \
        for (PyTypeObject *t = Py_TYPE(o); found < 0 || slots[found].slot == NULL; t = t->tp_base) \
            for (found = types - 1; found >= 0 && slots[found].type != t; found--)            \
                ;                                                                             \
        slots[found].slot;                                                                    \
    })

/* Other threads get an object from the interpreter only after tp_init. */
static int
slot_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    int rc = SLOT(self, init)(self, args, kwargs);
    forget(self);
    return rc;
}

/* A thread that finalizes, clears or deallocates an object has the only reference.  The history is
 * also cleared after the deallocation, because subclasses in Python free the memory without the
 * wrapper below. */
static void
slot_dealloc(PyObject *self)
{
    unsigned long size = size_of(self);
    forget(self);
    SLOT(self, dealloc)(self);
    forget_memory(self, size);
}

static void
slot_finalize(PyObject *self)
{
    forget(self);
    SLOT(self, finalize)(self);
}

static int
slot_clear(PyObject *self)
{
    forget(self);
    return SLOT(self, clear)(self);
}

void __real_PyObject_GC_Del(void *o);

void HIDDEN
__wrap_PyObject_GC_Del(void *o)
{
    forget(o);
    __real_PyObject_GC_Del(o);
}

PyObject *__real_PyType_FromSpecWithBases(PyType_Spec *spec, PyObject *bases);

PyObject HIDDEN *
__wrap_PyType_FromSpecWithBases(PyType_Spec *spec, PyObject *bases)
{
    int n = 0, k = types;
    while (spec->slots[n++].slot != 0)
        ;
    PyType_Slot *copy = calloc((size_t)n + 1, sizeof *copy); /* never freed */
    if (copy == NULL || k == sizeof slots / sizeof *slots)
        abort();
    for (int i = 0; i < n - 1; i++) {
        copy[i] = spec->slots[i];
        void *function = copy[i].pfunc;
        switch (copy[i].slot) {
        case Py_tp_init:
            slots[k].init = (initproc)function;
            copy[i].pfunc = (void *)slot_init;
            break;
        case Py_tp_dealloc:
            slots[k].dealloc = (destructor)function;
            copy[i].pfunc = (void *)slot_dealloc;
            break;
        case Py_tp_finalize:
            slots[k].finalize = (destructor)function;
            copy[i].pfunc = (void *)slot_finalize;
            break;
        case Py_tp_clear:
            slots[k].clear = (inquiry)function;
            copy[i].pfunc = (void *)slot_clear;
            break;
        }
    }
    if (spec->flags & Py_TPFLAGS_HAVE_GC)
        copy[n - 1] = (PyType_Slot){Py_tp_free, (void *)__wrap_PyObject_GC_Del};
    PyType_Spec changed = *spec;
    changed.slots = copy;
    PyObject *type = __real_PyType_FromSpecWithBases(&changed, bases);
    slots[k].type = (PyTypeObject *)type;
    types++;
    return type;
}

PyObject HIDDEN *
__wrap_PyType_FromSpec(PyType_Spec *spec)
{
    return __wrap_PyType_FromSpecWithBases(spec, NULL);
}
