/*
 * library_shim.c: pybridge/core/runtime as a shared library of its own, so that
 * tests reach it through ctypes without a loop.
 */
#define GL_AMALGAMATION
#include "runtime/process.c"
#include "runtime/library.c"
#include "runtime/signals.c"
#include "runtime/stack.c"
#include "runtime/limits.c"
#include "runtime/slack.c"
#include "runtime/image.c"
#include "runtime/exit.c"
#include "runtime/go_calls.c"

#include <sys/wait.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const gl_table *shim_library(const char **message) { return gl_library_open(message); }
/* Inside of the live runtime. */
EXPORT const void *shim_table(void) { return gl_here->table; }
EXPORT bool shim_clock_is_replaced(void) { return gl_clock_is_replaced(); }
EXPORT uint64_t shim_epoch(void) { return gl_library_epoch(); }
EXPORT void shim_bind_thread(void) { library_bind_thread(); }
EXPORT const char *shim_run_begins(void) { return gl_library_run_begins(); }
EXPORT const char *shim_stack_short(void) { return gl_library_stack_error(); }
EXPORT void shim_run_ends(void) { gl_library_run_ends(); }
EXPORT void shim_set_path(const char *path) { gl_library_set_path(path); }
EXPORT void shim_describe(gl_library_facts *facts) { gl_library_describe(facts); }

/* Puts the live runtime to work: a reactor, which is woken out of a turn, and what the
 * runtime says of itself.  Returns the length of that, or what failed. */
EXPORT int32_t shim_go(char *out, int32_t cap)
{
    const gl_table *go = gl_here->table;
    gl_submission submissions[4];
    gl_completion completions[16];
    uint8_t arena[4096 + GL_ARENA_SLACK];
    gl_shared shared = {.sub = submissions,
                        .sub_cap = 4,
                        .cmp = completions,
                        .cmp_cap = 16,
                        .arena = arena,
                        .arena_cap = 4096};
    int32_t reactor = go->reactor_new(&shared);
    if (reactor < 0)
        return reactor;
    shared.wake_pending = 1;
    int32_t length = gl_wake_up(&shared) ? 0 : -1;
    while (length >= 0 && shared.wakeups == 0)
        length = go->turn(reactor, -1);
    if (length >= 0)
        length = go->reactor_facts(reactor, out, cap);
    go->reactor_close(reactor);
    return length;
}

/* 1 if a child of vfork(2) sees this process's epoch, which it must. */
EXPORT int shim_vfork_sees_epoch(void)
{
    uint64_t epoch = gl_library_epoch();
    pid_t pid = vfork();
    if (pid == 0)
        _exit(gl_library_epoch() == epoch ? 0 : 1);
    int status;
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
}
