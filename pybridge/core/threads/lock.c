/*
 * lock.c: the lock of a loop, in a free-threaded build of CPython.
 *
 * The lock takes the place of the GIL: only the thread that has it uses a loop's data.  It is a
 * critical section of CPython, on an object that no other code uses:
 *
 *     free --begin--> held --a call of Python waits, sleeps, or polls--> released
 *       ^              | ^                                                   |
 *       +-----end------+ +-------------- the call goes on -------------------+
 *
 * As with the GIL, a thread that waits for something never blocks another one, and code
 * between two calls that may run Python is never interrupted.
 *
 * A waiting thread gets the lock between two iterations, or while the loop polls.  A callback that
 * computes loses the lock after some milliseconds, as with the GIL: the waiting thread stops the
 * world, which makes every thread release its sections, and takes the lock while it is stopped.
 *
 * A section counts only while it is the thread's innermost: after a wait CPython takes the lock of
 * an outer section back only when the inner section ends.  So a method begins a section of its own,
 * unless the loop's section is the innermost already.  CPython allows a second section of one lock
 * in a thread; the check costs a comparison.
 */
#include "threads/threads.h"

#ifdef GL_FREE_THREADED

#include <limits.h>
#include <sched.h>
#include <time.h>
#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

/* Flag in a thread's pointer to its innermost section, and in each section's pointer to the next
 * outer one. */
#define SECTION_GIVEN_UP ((uintptr_t)1)
#define SECTION_MASK (~(uintptr_t)3)

/* A bit of a PyMutex; its other bits do not matter here. */
#define MUTEX_LOCKED 1

#if !GL_CRITICAL_SECTIONS_KNOWN
#error "goloop does not know the critical sections of this Python; look at SECTION_GIVEN_UP"
#endif

/* Returns true if this thread has the lock: in its innermost section or, if `innermost` is false,
 * in any of its sections that it has not given up. */
static inline bool
lock_is_held(PyObject *lock, bool innermost)
{
    uintptr_t word = PyThreadState_GetUnchecked()->critical_section;
    while ((word & SECTION_MASK) && !(word & SECTION_GIVEN_UP)) {
        const PyCriticalSection *section = (const PyCriticalSection *)(word & SECTION_MASK);
        if (section->_cs_mutex == &lock->ob_mutex)
            return true;
        if (innermost)
            return false;
        word = section->_cs_prev;
    }
    return false;
}

/* ---- waiting --------------------------------------------------------------------------------- */

#define WAIT_NS 1000000 /* between two attempts */
#define WAIT_PATIENCE 5 /* attempts, together as long as Python's switch interval */

/* Initialises the inbox's mutex.  Returns 0 or an errno. */
static int
inbox_init(gl_inbox *inbox)
{
    return pthread_mutex_init(&inbox->mutex, NULL);
}

/* Waits for an event, at most `ns`, and may return earlier; `event` is a futex word that
 * inbox_signal() increments.  The caller has the mutex, which is released during the wait, and is
 * detached from Python.  Not with a pthread condition variable, which waits until an absolute time
 * of the kernel's clock: a preloaded library (libfaketime) may have replaced the function that
 * reads that clock. */
static void
inbox_wait(gl_inbox *inbox, uint32_t *event, long ns)
{
    const struct timespec time = {0, ns};
    uint32_t before = __atomic_load_n(event, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&inbox->mutex);
#ifdef __linux__
    (void)syscall(SYS_futex, event, FUTEX_WAIT_PRIVATE, before, &time, NULL, 0);
#else
    (void)before;
    (void)time;
    sched_yield(); /* the caller checks again */
#endif
    pthread_mutex_lock(&inbox->mutex);
}

/* Ends all waits for an event.  The caller has the mutex. */
static void
inbox_signal(uint32_t *event)
{
    __atomic_add_fetch(event, 1, __ATOMIC_RELAXED);
#ifdef __linux__
    (void)syscall(SYS_futex, event, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#endif
}

/* Takes the lock, if it is free, by a new section of this thread in the guard, and returns true.
 * Returns false, without a change, if a thread has the lock: PyCriticalSection_Begin would then
 * wait until the owner gives the lock up, which a callback that computes never does. */
static inline bool
try_lock_by_section(gl_guard *guard, PyMutex *lock)
{
    uint8_t seen = __atomic_load_n(&lock->_bits, __ATOMIC_RELAXED);
    do
        if (seen & MUTEX_LOCKED)
            return false;
    while (!__atomic_compare_exchange_n(&lock->_bits, &seen, seen | MUTEX_LOCKED, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
    PyThreadState *ts = PyThreadState_GetUnchecked();
    guard->section = (PyCriticalSection){._cs_mutex = lock, ._cs_prev = ts->critical_section};
    ts->critical_section = (uintptr_t)&guard->section;
#ifdef __SANITIZE_THREAD__
    extern void goloop_tsan_begun(PyMutex *); /* tools/tsan/interpreter.c */
    goloop_tsan_begun(lock);
#endif
    return guard->begun = true;
}

/* A gcvisitobjects_t, called in a stopped world, where no other thread is in a section.  Takes the
 * lock that the gl_guard names, since its former owner might be first after the stop.  This fails
 * only if CPython has handed the lock to a thread that is about to continue.  Returns 0, which ends
 * the visit. */
static int
take_lock_in_stopped_world(PyObject *Py_UNUSED(first_object), void *guard)
{
    try_lock_by_section(guard, ((gl_guard *)guard)->section._cs_mutex);
    return 0;
}

/* Waits until the loop offers the lock, or stops the world after some attempts, and takes the lock.
 * Then signals `entered`, so that gl_lock_let_in() returns in the thread that offered the lock.
 * The thread is detached from Python while it waits. */
static void
lock_wait(gl_guard *guard, gl_loop *loop)
{
    gl_inbox *inbox = &loop->inbox;
    PyMutex *lock = &loop->lock->ob_mutex;
    __atomic_add_fetch(&inbox->waiting, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; !try_lock_by_section(guard, lock); i++) {
        guard->section._cs_mutex = lock;
        if (i >= WAIT_PATIENCE)
            gl_visit_stopped_world(take_lock_in_stopped_world, guard); /* runs no Python */
        if (guard->begun)
            break;
        Py_BEGIN_ALLOW_THREADS
        pthread_mutex_lock(&inbox->mutex);
        if (GL_READ(lock->_bits) & MUTEX_LOCKED) /* else the loop waits for `entered` already */
            inbox_wait(inbox, &inbox->let_in, WAIT_NS);
        pthread_mutex_unlock(&inbox->mutex);
        Py_END_ALLOW_THREADS
    }
    pthread_mutex_lock(&inbox->mutex);
    __atomic_sub_fetch(&inbox->waiting, 1, __ATOMIC_SEQ_CST);
    inbox->entries++;
    inbox_signal(&inbox->entered);
    pthread_mutex_unlock(&inbox->mutex);
}

GL_PRIVATE void
gl_lock_let_in(gl_loop *loop)
{
    gl_inbox *inbox = &loop->inbox;
    uint32_t before = inbox->entries; /* written with the loop's lock, which we still have */
    Py_BEGIN_ALLOW_THREADS
    pthread_mutex_lock(&inbox->mutex);
    inbox_signal(&inbox->let_in);
    if (inbox->entries == before) /* else a thread has had the lock already, without the signal */
        inbox_wait(inbox, &inbox->entered, WAIT_NS / 5);
    pthread_mutex_unlock(&inbox->mutex);
    Py_END_ALLOW_THREADS
}

/* ---- guards -------------------------------------------------------------------------------- */

/* Takes the lock by a section of CPython in the guard, which may wait. */
static inline void
lock_by_section(gl_guard *guard, PyObject *lock)
{
    guard->begun = true;
    PyCriticalSection_Begin(&guard->section, lock);
}

/* Takes the loop's lock by a section in the guard, and waits for the lock if necessary.  Leaves the
 * guard unused if the thread has the lock already.  With `innermost` only the thread's innermost
 * section counts as having it: a thread that has the lock in an outer section begins a second
 * section, so that a wait releases the lock and takes it again. */
static inline void
lock_loop_in_guard(gl_guard *guard, gl_loop *loop, bool innermost)
{
    PyObject *lock = loop->lock;
    if (lock_is_held(lock, innermost) || try_lock_by_section(guard, &lock->ob_mutex))
        return;
    if (lock_is_held(lock, false))
        lock_by_section(guard, lock); /* gives up the lock of the outer section first */
    else
        lock_wait(guard, loop);
}

GL_PRIVATE_INLINE void
gl_guard_begin(gl_guard *guard, gl_loop *loop)
{
    if (loop != NULL)
        lock_loop_in_guard(guard, loop, true);
}

GL_PRIVATE_INLINE void
gl_guard_begin_briefly(gl_guard *guard, gl_loop *loop)
{
    lock_loop_in_guard(guard, loop, false);
}

GL_PRIVATE_INLINE void
gl_guard_begin_self(gl_guard *guard, PyObject *self)
{
    if (!lock_is_held(self, true))
        lock_by_section(guard, self);
}

GL_PRIVATE_INLINE void
gl_guard_end(gl_guard *guard)
{
    if (guard->begun)
        PyCriticalSection_End(&guard->section);
}

GL_PRIVATE int
gl_lock_init(gl_loop *loop)
{
    loop->lock = PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type);
    if (loop->lock == NULL)
        return -1;
    if (inbox_init(&loop->inbox) == 0)
        return 0;
    PyErr_NoMemory();
    return -1;
}

GL_PRIVATE void
gl_lock_forget_others(gl_loop *loop)
{
    (void)inbox_init(&loop->inbox);
    loop->inbox.waiting = 0;
    loop->inbox.waking = 0;
    memset(&loop->current.mutex, 0, sizeof loop->current.mutex);
    /* CPython may have handed the lock to a thread that has stayed in the parent. */
    loop->lock->ob_mutex._bits = lock_is_held(loop->lock, false) ? MUTEX_LOCKED : 0;
}

#endif /* GL_FREE_THREADED */
