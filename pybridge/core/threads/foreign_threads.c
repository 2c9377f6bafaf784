/*
 * foreign_threads.c: the one way by which threads that Python does not know come to it.
 *
 *     gl_foreign_thread_attach: does Python live? --no--> nothing is done
 *         | yes, and it does not end before the thread has left
 *     the GIL, where Python is called
 *         |
 *     what neither blocks nor imports
 *         |
 *     gl_foreign_thread_detach
 *
 * They are the monitor and the thread that answers `goloop top`, which look at Python's memory, and
 * the one that reports a block.  A process may live on for long when Python has ended in it: in
 * atexit handlers of C, or in a host that has embedded it, perhaps with a second interpreter, in
 * which goloop can't be loaded.  So atexit shuts the door for good, and waits for those inside.
 *
 * Both words lie in the page that a forked child gets empty: a thread inside stayed behind.
 */
#include "threads/threads.h"

#include <time.h>

static bool
door_python_lives(void)
{
#if GL_HAS_IS_FINALIZING
    bool ends = Py_IsFinalizing();
#else
    bool ends = _Py_IsFinalizing();
#endif
    return !ends && Py_IsInitialized() && !atomic_load(&gl_here->ended);
}

GL_PRIVATE bool
gl_foreign_thread_attach(PyGILState_STATE *gil)
{
    atomic_fetch_add(&gl_here->inside, 1);
    if (!door_python_lives()) {
        atomic_fetch_sub(&gl_here->inside, 1);
        return false;
    }
    if (gil != NULL)
        *gil = PyGILState_Ensure();
    return true;
}

GL_PRIVATE void
gl_foreign_thread_detach(const PyGILState_STATE *gil)
{
    if (gil != NULL)
        PyGILState_Release(*gil);
    atomic_fetch_sub(&gl_here->inside, 1);
}

GL_PRIVATE PyObject *
gl_foreign_thread_close(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const struct timespec moment = {0, 1000000};
    atomic_store(&gl_here->ended, 1);
    Py_BEGIN_ALLOW_THREADS
    while (atomic_load(&gl_here->inside) != 0)
        nanosleep(&moment, NULL);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
