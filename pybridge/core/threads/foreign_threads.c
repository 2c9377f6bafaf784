/*
 * foreign_threads.c: the only way in which threads that Python did not create enter Python.
 *
 *     gl_foreign_thread_attach: is Python alive? --no--> returns false
 *         | yes, and it does not end before the thread has detached
 *     the GIL, if the thread calls Python
 *         |
 *     code that neither blocks nor imports
 *         |
 *     gl_foreign_thread_detach
 *
 * Foreign threads are the monitor and the thread that answers `goloop top`, which both read
 * Python's memory, and the thread that reports a blocked loop.  A process may live on for long
 * after Python has ended: in atexit handlers of C, or in a program that embeds Python, perhaps with
 * a second interpreter, in which goloop can't be loaded.  So an atexit handler refuses further
 * threads for good, and waits for the attached ones.
 *
 * A Python thread that stops the world counts as attached too (threads/stop_world.c): if Python
 * ended then, it would stop the thread for good, with a lock that the end of Python needs.
 *
 * All words are in the page that a forked child gets empty, because the attached threads stay in
 * the parent.
 */
#include "threads/threads.h"

#include <time.h>

/* Returns true while threads may enter Python: it is initialised and does not end yet. */
static bool
python_is_alive(void)
{
#if GL_HAS_IS_FINALIZING
    bool finalizing = Py_IsFinalizing();
#else
    bool finalizing = _Py_IsFinalizing();
#endif
    return !finalizing && Py_IsInitialized() && !atomic_load(&gl_here->python_ended);
}

GL_PRIVATE bool
gl_foreign_thread_attach(PyGILState_STATE *gil)
{
    atomic_fetch_add(&gl_here->foreign_threads, 1);
    if (!python_is_alive()) {
        atomic_fetch_sub(&gl_here->foreign_threads, 1);
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
    atomic_fetch_sub(&gl_here->foreign_threads, 1);
}

GL_PRIVATE PyObject *
gl_foreign_thread_close(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    const struct timespec moment = {0, 1000000};
    atomic_store(&gl_here->ending_thread, PyThread_get_thread_ident());
    atomic_store(&gl_here->python_ended, 1);
    Py_BEGIN_ALLOW_THREADS
    while (atomic_load(&gl_here->foreign_threads) != 0)
        nanosleep(&moment, NULL);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}
