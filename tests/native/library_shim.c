/*
 * library_shim.c: pybridge/core/library.c as a shared library of its own, so that
 * tests reach it through ctypes without a loop.
 */
#include "library.c"

#include <sys/wait.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT const gl_table *shim_library(const char **message) { return gl_library(message); }
EXPORT uint64_t shim_epoch(void) { return gl_library_epoch(); }
EXPORT void shim_bind_thread(void) { gl_library_bind_thread(); }
EXPORT void shim_set_path(const char *path) { gl_library_set_path(path); }
EXPORT void shim_before_fork(void) { gl_library_before_fork(); }
EXPORT void shim_describe(gl_library_facts *facts) { gl_library_describe(facts); }

/* describe() of the live runtime: runs Go code in it. */
EXPORT int32_t shim_go(char *out, int32_t cap)
{
    return gl_here->table->describe(-1, out, cap);
}

/* The inherited state, to see what a child would do without a spare. */
EXPORT void shim_drop_spare(void) { gl_lib.spare_ready = false; }

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
