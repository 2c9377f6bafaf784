/*
 * stack.c: where the stack of the process's first thread lies, for Go.
 *
 * Go asks pthread_getattr_np when a thread enters it first, and for that thread glibc reads
 * /proc/self/maps from end to end: 0.25 ms, a tenth of the library's start, and more with each
 * package that was imported.  But that stack ends where the kernel has put the program's name.
 *
 * The linker's --wrap gives runtime/cgo this function for libc's; without that nobody calls it.
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
/* libc's: bound with the library, for a forked child must not ask ld.so. */
int __real_pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes) __attribute__((weak));

#define STACK_MOST ((size_t)8 << 20)

/* 0 if this is the first thread, on its own stack and within STACK_MOST of that. */
static int
first_stack(pthread_t thread, pthread_attr_t *attributes)
{
    struct rlimit limit;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t name = (uintptr_t)getauxval(AT_EXECFN), here = (uintptr_t)__builtin_frame_address(0);
    if (!pthread_equal(thread, pthread_self()) || syscall(SYS_gettid) != (long)getpid() ||
        getrlimit(RLIMIT_STACK, &limit) != 0)
        return -1;
    size_t size = limit.rlim_cur < STACK_MOST ? (size_t)limit.rlim_cur : STACK_MOST;
    if (here > name || name - here >= size)
        return -1;
    return pthread_attr_setstack(attributes, (char *)(name / page * page) + page - size, size);
}

int
__wrap_pthread_getattr_np(pthread_t thread, pthread_attr_t *attributes)
{
    if (first_stack(thread, attributes) == 0)
        return 0;
    return __real_pthread_getattr_np ? __real_pthread_getattr_np(thread, attributes) : ENOSYS;
}

#endif
