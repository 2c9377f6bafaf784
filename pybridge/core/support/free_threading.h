/*
 * free_threading.h: substitutes for the GIL in a free-threaded build of CPython.
 *
 * In a build with a GIL these macros expand to nothing: GL_GUARD is empty and GL_OWNER_LOOP has no
 * field.  In a build without the GIL, each loop has a lock (threads/lock.c) in place of the GIL:
 * only the thread that has the lock uses the loop's objects.
 *
 *   - the thread that runs the loop has its lock, and releases it while it polls or waits
 *   - a method or an attribute of a loop's object first takes the lock, in every thread, and so
 *     does the deallocation of such an object (threads/guard.c wraps these; the other slots of a
 *     type use GL_GUARD)
 *
 * GL_OWNER_LOOP is an object's field for its loop, valid from construction to deallocation.
 */
#pragma once

#include <Python.h>
#include <stdbool.h>

#ifdef Py_GIL_DISABLED
#define GL_FREE_THREADED 1

struct gl_loop;

/* A field of each object of a loop. */
typedef struct gl_owner_loop {
    struct gl_loop *loop; /* owned; NULL until the object is constructed */
    PyObject *next;       /* the next Handle, for a Handle in the loop's inbox */
} gl_owner_loop;
/* The field, and the statements for it in a constructor, tp_traverse and tp_clear. */
#define GL_OWNER_LOOP gl_owner_loop owner_loop;
#define GL_OWNER_LOOP_SET(o, loop) gl_owner_loop_set(&(o)->owner_loop, Py_NewRef(loop))
#define GL_OWNER_LOOP_VISIT(o) Py_VISIT((o)->owner_loop.loop)
#define GL_OWNER_LOOP_CLEAR(o) Py_CLEAR((o)->owner_loop.loop)

/* Sets the loop of an object; steals a reference.  Other threads find the loop by this field. */
static inline void
gl_owner_loop_set(gl_owner_loop *owner, PyObject *loop)
{
    __atomic_store_n(&owner->loop, (struct gl_loop *)loop, __ATOMIC_RELEASE);
}

#else
#define GL_OWNER_LOOP
#define GL_OWNER_LOOP_SET(o, loop) ((void)0)
#define GL_OWNER_LOOP_VISIT(o) ((void)0)
#define GL_OWNER_LOOP_CLEAR(o) ((void)0)
#endif

/* A word that other threads may read or write at the same time, without a lock. */
#define GL_READ(word) __atomic_load_n(&(word), __ATOMIC_RELAXED)
#define GL_WRITE(word, value) __atomic_store_n(&(word), value, __ATOMIC_RELAXED)

/* GL_LOCK locks one of G's mutexes, which guard data outside of loops.  In a build with the GIL it
 * does nothing. */
#ifdef GL_FREE_THREADED
/* Lock and unlock an object's own lock, in the same block. */
#define GL_LOCK_OBJECT(object) Py_BEGIN_CRITICAL_SECTION(object)
#define GL_UNLOCK_OBJECT() Py_END_CRITICAL_SECTION()
#define GL_LOCK(mutex) PyMutex_Lock(&G.mutex)
#define GL_UNLOCK(mutex) PyMutex_Unlock(&G.mutex)
#else
#define GL_LOCK_OBJECT(object) {
#define GL_UNLOCK_OBJECT() }
#define GL_LOCK(mutex) ((void)0)
#define GL_UNLOCK(mutex) ((void)0)
#endif

/* ---- references to objects that may be in deallocation --------------------------------------- */

/* Prepares a new object for gl_try_newref(): its shared reference count shows from then on that the
 * deallocation has begun.  Does nothing in a build with the GIL. */
static inline void
gl_enable_try(PyObject *o)
{
#ifdef GL_FREE_THREADED
    Py_ssize_t none = 0;
    (void)__atomic_compare_exchange_n(&o->ob_ref_shared, &none, _Py_REF_MAYBE_WEAKREF, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#else
    (void)o;
#endif
}

/* Returns a new reference to an object of which the caller has a borrowed pointer; NULL, without an
 * exception, once the object's deallocation has begun.  gl_enable_try() has prepared the object.
 * The caller has locked a mutex that the deallocation locks too, so the object's memory is still
 * valid. */
static inline PyObject *
gl_try_newref(PyObject *o)
{
#ifdef GL_FREE_THREADED
    uint32_t local = __atomic_load_n(&o->ob_ref_local, __ATOMIC_RELAXED);
    if (local == _Py_IMMORTAL_REFCNT_LOCAL ||
        __atomic_load_n(&o->ob_tid, __ATOMIC_RELAXED) == _Py_ThreadId())
        return Py_REFCNT(o) > 0 ? Py_NewRef(o) : NULL;
    Py_ssize_t shared = __atomic_load_n(&o->ob_ref_shared, __ATOMIC_RELAXED);
    do {
        if (shared == 0 || shared == _Py_REF_MERGED)
            return NULL;
    } while (!__atomic_compare_exchange_n(&o->ob_ref_shared, &shared,
                                          shared + (1 << _Py_REF_SHARED_SHIFT), false,
                                          __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
    return o;
#else
    return Py_REFCNT(o) > 0 ? Py_NewRef(o) : NULL;
#endif
}

#ifdef GL_FREE_THREADED
/* ---- references that one thread takes and another drops ----------------------------------------
 *
 * An object has two reference counts: one for the thread that created it, and one for all other
 * threads.  If one thread takes a reference and another drops it, the sum of the counts is right,
 * but the first count may reach 0 too early.  Then only the creating thread can free the object,
 * at a later time. */

/* Returns true if the calling thread's references to the object are in the shared count. */
static inline bool
gl_is_shared(PyObject *o)
{
    return __atomic_load_n(&o->ob_tid, __ATOMIC_RELAXED) != _Py_ThreadId();
}

/* Takes a reference that another thread will drop; returns the object. */
static inline PyObject *
gl_newref_shared(PyObject *o)
{
    if (gl_is_shared(o))
        return Py_NewRef(o);
    __atomic_fetch_add(&o->ob_ref_shared, 1 << _Py_REF_SHARED_SHIFT, __ATOMIC_RELAXED);
    return o;
}

/* Drops n references that other threads have taken; the caller has one more.  The object must not
 * be immortal. */
static inline void
gl_decref_shared(PyObject *o, int64_t n)
{
    Py_ssize_t old = __atomic_load_n(&o->ob_ref_shared, __ATOMIC_RELAXED);
    while (n > 1 && old >> _Py_REF_SHARED_SHIFT > n) {
        Py_ssize_t less = old - ((Py_ssize_t)n << _Py_REF_SHARED_SHIFT);
        if (__atomic_compare_exchange_n(&o->ob_ref_shared, &old, less, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return;
    }
    for (; n > 0; n--) /* near 0 CPython's own function applies the rules of the count */
        _Py_DecRefShared(o);
}
#endif
