/*
 * runtime_first_thread_stack.c: the stack of the process's first thread, for Go.
 *
 * Go calls pthread_getattr_np when a thread first enters it, and for the first thread glibc reads
 * all of /proc/self/maps: 0.25 ms, a tenth of the library's start, and more with each imported
 * package. But the end of that stack is known: the kernel puts the program's name there.
 *
 * The linker's --wrap makes runtime/cgo call this function instead of libc's.
 */
#include <errno.h>
#include <pthread.h>

#if defined(__linux__) && defined(__GLIBC__)

#include <stdint.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

int __wrap_pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes);
/* libc's function, bound when the library is loaded: a forked child must not call ld.so. */
int __real_pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes) __attribute__((weak));

/* The largest size that Go is given for the first thread's stack. */
#define MAX_STACK ((size_t)8 << 20)

/* Fills in the attributes of the first thread's stack.  Returns 0; -1 if `thread` is not the
 * calling first thread, on its own stack and within MAX_STACK of its end; or an errno. */
static int
set_first_stack(pthread_t thread, pthread_attr_t *attributes)
{
    struct rlimit limit;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t name = (uintptr_t)getauxval(AT_EXECFN);
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    if (!pthread_equal(thread, pthread_self()) || syscall(SYS_gettid) != (long)getpid() ||
        getrlimit(RLIMIT_STACK, &limit) != 0)
        return -1;
    size_t size = limit.rlim_cur < MAX_STACK ? (size_t)limit.rlim_cur : MAX_STACK;
    if (here > name || name - here >= size)
        return -1;
    return pthread_attr_setstack(attributes, (char *)(name / page * page) + page - size, size);
}

/* Replacement of pthread_getattr_np() for runtime/cgo, which uses only the bounds of the stack.
 * Returns 0 or an errno. */
int
__wrap_pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
    if (set_first_stack(thread, attributes) == 0)
        return 0;
    if (__real_pthread_getattr_np == NULL)
        return ENOSYS;
    return __real_pthread_getattr_np(thread, attributes);
}

#endif
