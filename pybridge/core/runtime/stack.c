/*
 * stack.c: the signal stack of a thread while it may run Go.
 *
 * If a thread that calls Go has no alternate signal stack, Go installs one of 32 KiB for good.
 * This size is too small: the kernel nests the handlers of all pending signals on it, with up to
 * 3.5 KiB of registers for each (more on newer processors), and CPython's handlers use that stack
 * also while the thread is in Python.
 *
 * (Handlers without SA_ONSTACK do not use it: in Go they run on the stack of the goroutine that
 * stands for the thread, which is as large, see build_backend/goloop_build/commands.py.)
 *
 * Therefore goloop installs a stack, large enough for all kinds of signals at once, while a thread
 * runs a loop, and while it calls Go outside of a run:
 *
 *     its own, or none --stack_enter--> ours (depth > 0)
 *                      <--stack_leave--
 *
 * If the thread already had a larger stack, that one stays in use.  If other code installs a stack
 * in the meantime (faulthandler.enable()), its stack stays installed; the code may restore goloop's
 * stack later, so that one then stays mapped until the process ends.
 *
 * Go does not need to know of the change: none of its handlers is installed (signals.c), and no
 * other code asks Go for the bounds of the signal stack.
 *
 * The thread's own stack is checked too: Go runs on it, and ends the process if it is too small.
 */
#include "runtime/private.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif

/* Bytes for one handler, and bytes that remain when all handlers are nested. */
#define GL_STACK_HANDLER 4096u
#define GL_STACK_REST 65536u
/* The size of the kernel's signal frame, if the kernel does not report it. */
#define GL_STACK_FRAME 4096u

/* Returns the size of a page. */
static size_t
page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* Returns the size of a signal stack, in bytes, without its guard page. */
static size_t
stack_size(void)
{
    size_t frame = 0;
#if defined(AT_MINSIGSTKSZ)
    frame = getauxval(AT_MINSIGSTKSZ);
#endif
    if (frame < GL_STACK_FRAME)
        frame = GL_STACK_FRAME;
    size_t size = GL_SIGNALS * (frame + GL_STACK_HANDLER) + GL_STACK_REST;
    size_t page = page_size();
    return (size + page - 1) / page * page;
}

/* Returns a signal stack, cached or new, with a guard page at its lowest address; NULL with
 * errno. */
static char *
stack_alloc(void)
{
    for (int i = 0; i < GL_STACK_SPARES; i++) {
        char *spare = atomic_exchange(&library.stack_spare[i], NULL);
        if (spare != NULL)
            return spare;
    }
    size_t page = page_size();
    size_t size = stack_size() + page;
    char *made = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED)
        return NULL;
    if (mprotect(made, page, PROT_NONE) != 0) {
        int err = errno;
        munmap(made, size);
        errno = err;
        return NULL;
    }
    return made;
}

/* Returns a signal stack to the cache, or unmaps it if the cache is full. */
static void
stack_release(char *stack)
{
    for (int i = 0; i < GL_STACK_SPARES; i++) {
        char *none = NULL;
        if (atomic_compare_exchange_strong(&library.stack_spare[i], &none, stack))
            return;
    }
    munmap(stack, stack_size() + page_size());
}

/* Installs a signal stack for this thread, and stores the previous one.  Returns 0, or an errno.
 * Also returns 0, and installs none (`ours` stays NULL), if the thread has one that is as large, or
 * runs on its signal stack now. */
static int
stack_install(void)
{
    char *stack = stack_alloc();
    if (stack == NULL)
        return errno;
    stack_t ours = {.ss_sp = stack + page_size(), .ss_size = stack_size()};
    stack_t *before = &thread_here.before;
    if (sigaltstack(&ours, before) != 0) {
        int err = errno;
        stack_release(stack);
        /* A thread that runs on its alternate stack at the moment cannot change it. */
        if (sigaltstack(NULL, before) == 0 && (before->ss_flags & SS_ONSTACK))
            return 0;
        return err;
    }
    if (!(before->ss_flags & SS_DISABLE) && before->ss_size >= ours.ss_size) {
        sigaltstack(before, NULL);
        stack_release(stack);
        return 0;
    }
    thread_here.ours = stack;
    return 0;
}

GL_PRIVATE int
stack_enter(void)
{
    if (thread_here.depth == 0) {
        int err = stack_install();
        if (err != 0)
            return err;
    }
    thread_here.depth++;
    return 0;
}

GL_PRIVATE void
stack_leave(void)
{
    char *stack = thread_here.ours;
    thread_here.depth--;
    if (thread_here.depth > 0 || stack == NULL)
        return;
    thread_here.ours = NULL;
    stack_t now;
    if (sigaltstack(&thread_here.before, &now) != 0)
        return; /* the stack is in use */
    if (now.ss_sp == stack + page_size())
        stack_release(stack);
    else
        sigaltstack(&now, NULL);
}

/* ---- the thread's own stack ---------------------------------------------------- */

/* Go's own threads have a stack of this size for the same work, without C's frames. */
#define GL_STACK_LEAST (16u * 1024u)

/* Returns the lowest address of the calling thread's stack; 0 if it is unknown, and for the
 * process's first thread, whose stack can still grow. */
static uintptr_t
stack_lowest(void)
{
    uintptr_t lowest = 0;
#if defined(__linux__)
    pthread_attr_t attributes;
    void *address;
    size_t size;
    if (syscall(SYS_gettid) == getpid() || pthread_getattr_np(pthread_self(), &attributes) != 0)
        return 0; /* the stack of the process's first thread grows up to the limit */
    if (pthread_attr_getstack(&attributes, &address, &size) == 0)
        lowest = (uintptr_t)address;
    pthread_attr_destroy(&attributes);
#endif
    return lowest;
}

GL_PRIVATE bool
stack_suffices(void)
{
    if (!thread_here.lowest_known)
        thread_here.lowest = stack_lowest();
    thread_here.lowest_known = true;
    uintptr_t lowest = thread_here.lowest;
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    return lowest == 0 || here < lowest || here - lowest >= GL_STACK_LEAST;
}
