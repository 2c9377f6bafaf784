/*
 * stop_world.c: calls a function while all other Python threads are stopped, in a build without the
 * GIL.
 *
 *     import lock  ->  PyUnstable_GC_VisitObjects  ->  all other threads stop
 *                                                      first object: the function
 *     released     <-  the other threads continue  <-
 *
 * The import lock makes os.fork() wait.  In CPython 3.13 a thread that stops the world first locks
 * the interpreter's mutex for stops, and then waits until another stop ends.  os.fork() stops the
 * world as well.  If a thread waits there at the fork, the mutex stays locked in the child, and the
 * next stop in the child waits forever, for example the stop of a garbage collection.
 *
 * os.fork() has the import lock from before it stops the world until after the fork, in the parent
 * and in the child, and runs no Python code meanwhile.  So no other thread is inside of
 * gl_visit_stopped_world() at the fork.  A lock of goloop's, which a hook before the fork acquires,
 * would be held while other hooks run Python code, which may wait for a thread that waits for that
 * lock.  The import lock is recursive, a thread that waits for it is detached, and importlib has it
 * only while it looks for the lock of one module, not while a module's code runs.
 *
 * Nor is a thread here when Python ends, which stops daemon threads for good: the hook at the exit
 * waits for the threads that are here, as it waits for foreign threads, and refuses others.
 *
 * CPython's own collector does not wait for a fork: docs/internals/fork.md, "Limits".
 */
#include "threads/threads.h"

#ifdef GL_FREE_THREADED

/* Calls _imp.acquire_lock() or _imp.release_lock().  Neither runs Python code nor fails, and the
 * exception that is set stays: PyObject_CallNoArgs() would fail in a deep recursion. */
static void
call_import_lock(PyObject *function)
{
    PyObject *result = PyCFunction_GetFunction(function)(PyCFunction_GET_SELF(function), NULL);
    Py_XDECREF(result);
}

GL_PRIVATE void
gl_visit_stopped_world(gcvisitobjects_t visit, void *arg)
{
    bool ends_python = atomic_load(&gl_here->ending_thread) == PyThread_get_thread_ident();
    if (!ends_python && !gl_foreign_thread_attach(NULL))
        return;
    call_import_lock(G.import_lock.acquire);
    PyUnstable_GC_VisitObjects(visit, arg);
    call_import_lock(G.import_lock.release);
    if (!ends_python)
        gl_foreign_thread_detach(NULL);
}

/* Imports a function of _imp, which has to be in C. */
static PyObject *
import_lock_function(const char *name)
{
    PyObject *function = gl_import_attr("_imp", name);
    if (function != NULL && !PyCFunction_CheckExact(function)) {
        PyErr_Format(PyExc_ImportError, "goloop needs CPython's own _imp.%s, got %R", name,
                     function);
        Py_CLEAR(function);
    }
    return function;
}
#endif /* GL_FREE_THREADED */

GL_PRIVATE int
gl_stop_world_init(PyObject *Py_UNUSED(module))
{
#ifdef GL_FREE_THREADED
    G.import_lock.acquire = import_lock_function("acquire_lock");
    if (G.import_lock.acquire == NULL)
        return -1;
    G.import_lock.release = import_lock_function("release_lock");
    return G.import_lock.release == NULL ? -1 : 0;
#else
    return 0;
#endif
}
