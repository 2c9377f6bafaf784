/*
 * process.c: the state of the library for the process and for each thread (private.h has the
 * fields), and the clock.
 */
#include "runtime/private.h"

#if defined(__linux__) && defined(__GLIBC__)
#include <dlfcn.h>
#include <gnu/libc-version.h>
#endif
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* lint: allow mutable-static: the process's library; private.h names the threads that use it */
GL_PRIVATE struct gl_library_state library;

/* lint: allow mutable-static: written once, when the extension is loaded; any thread reads it */
GL_PRIVATE gl_process *gl_here = &library.unmapped;

/* lint: allow mutable-static: one for each thread, which alone uses it */
GL_PRIVATE _Thread_local struct gl_library_thread thread_here;
/* lint: allow mutable-static: one for each thread, which alone uses it */
GL_PRIVATE _Thread_local int64_t (*gl_thread_clock)(void);

/* Writes half a sentence, the reason for a failure, to library.why, and returns it. */
GL_PRIVATE const char *
library_set_reason(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(library.why, sizeof library.why, format, args);
    va_end(args);
    return library.why;
}

GL_PRIVATE void
clock_init(void)
{
#if defined(__linux__) && defined(__GLIBC__)
    Dl_info clock;
    Dl_info libc;
    if (dladdr((const void *)(uintptr_t)clock_gettime, &clock) != 0 &&
        dladdr((const void *)(uintptr_t)gnu_get_libc_version, &libc) != 0)
        library.clock_replaced = clock.dli_fbase != libc.dli_fbase;
#endif
}

GL_PRIVATE bool
gl_clock_is_replaced(void)
{
    return library.clock_replaced;
}

GL_PRIVATE_INLINE int64_t
gl_monotonic_ns(void)
{
    struct timespec ts;
    if (gl_thread_clock != NULL)
        return gl_thread_clock();
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
