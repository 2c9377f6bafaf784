/*
 * exit.c: lets a process end whose first thread has ended.
 *
 * A process lives as long as one of its threads, and a Go runtime's threads never end.  This
 * matters in a process that was forked by a thread other than the main thread.  Without Go, libc
 * calls exit(0) when the last thread's function has returned; with Go the process would never end.
 * Therefore the first thread of a process has a thread-specific value whose destructor waits for
 * the other threads, except the library's (golib/runtime_other_threads.go), and calls exit(0).
 *
 * The key is made when _core is loaded, so it is older than Go's own key, and
 * its destructor runs before Go's.
 *
 * On other systems exit_init() and exit_install_wait() do nothing.
 */
#include "runtime/private.h"

#if defined(__linux__)

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* The destructor of the first thread's value: waits until all other threads except the library's
 * have ended, and calls exit(0).  Does nothing in another thread and in a process without a Go
 * runtime. */
static void
exit_destructor(void *unused)
{
    (void)unused;
    if (syscall(SYS_gettid) != getpid() || gl_here->table == NULL)
        return; /* no Go here that would keep the process */
    while (go_wrappers.other_threads_alive((int32_t)syscall(SYS_gettid)) != 0) {
        struct timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    exit(0);
}

GL_PRIVATE void
exit_init(void)
{
    library.exit_key_made = pthread_key_create(&library.exit_key, exit_destructor) == 0;
}

GL_PRIVATE void
exit_install_wait(void)
{
    if (library.exit_key_made && syscall(SYS_gettid) == getpid())
        pthread_setspecific(library.exit_key, gl_here);
}

#else

GL_PRIVATE void
exit_init(void)
{
}
GL_PRIVATE void
exit_install_wait(void)
{
}

#endif
