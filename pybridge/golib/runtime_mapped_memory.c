/*
 * runtime_mapped_memory.c: the address ranges that Go's runtime has mapped, for a forked child.
 *
 * A child starts the library again in place of its parent's runtime, which is dead there, and a
 * new runtime reserves 1.1 GiB of address space for itself.  First the child unmaps all that the
 * dead one had mapped: else each generation of forks would keep the reservations and the heap of
 * all generations before it, and a limit of the address space (RLIMIT_AS) would soon end the line.
 *
 * The linker's --wrap makes runtime/cgo, through which the runtime maps and unmaps memory, call the
 * functions here instead of libc's.  The record is a part of the library's writable memory, so it
 * is cleared when the child restores that memory (pybridge/core/runtime/image.c).
 *
 * A fork copies the record at any instant, also while another thread changes it.  At each instant
 * it must have no address that Go has not mapped, because other code may have mapped that one.  So
 * a range is recorded after it was mapped and removed before it is unmapped, and each store in
 * between leaves ranges of Go.  At worst a child leaves a part mapped.
 *
 * Memory of the reactors (netloop/calls.go) is not recorded: the parent's loop objects, which the
 * child may inspect, refer to it.
 */
#define _GNU_SOURCE 1
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime_mapped_memory.h"

#if defined(__linux__)

/* The number of ranges that are recorded.  Adjacent ones are merged, and a runtime has some tens;
 * those that find no place stay mapped in a child. */
#define RANGES 512

typedef struct range {
    _Atomic uintptr_t start;
    _Atomic uintptr_t end; /* equal to `start`: the entry is free */
} range;

/* lint: allow mutable-static: of the runtime; changed under `range_lock` */
static range ranges[RANGES];
/* lint: allow mutable-static: held for a few stores, also by threads without a goroutine */
static atomic_flag range_lock = ATOMIC_FLAG_INIT;

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t size);
/* libc's functions.  Weak, because cgo links this file once without --wrap. */
void *__real_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
    __attribute__((weak));
int __real_munmap(void *at, size_t size) __attribute__((weak));

static void
lock_ranges(void)
{
    while (atomic_flag_test_and_set_explicit(&range_lock, memory_order_acquire))
        sched_yield();
}

static void
unlock_ranges(void)
{
    atomic_flag_clear_explicit(&range_lock, memory_order_release);
}

/* Returns the end of a mapping: the kernel maps and unmaps whole pages. */
static uintptr_t
find_end(const void *at, size_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    return ((uintptr_t)at + size + page - 1) / page * page;
}

/* Records the addresses from `start` to `end`, which are mapped, in a free entry, if there is one.
 * With the lock. */
static void
store_range(uintptr_t start, uintptr_t end)
{
    for (size_t i = 0; i < RANGES; i++)
        if (ranges[i].start == ranges[i].end) {
            ranges[i].start = UINTPTR_MAX; /* the old start with the new end is no range of Go */
            ranges[i].end = end;
            ranges[i].start = start;
            return;
        }
}

/* Records the addresses from `start` to `end`, which are mapped, and merges them with the ranges
 * that they touch. */
static void
add_range(uintptr_t start, uintptr_t end)
{
    lock_ranges();
    for (size_t i = 0; i < RANGES; i++) {
        uintptr_t low = ranges[i].start;
        uintptr_t high = ranges[i].end;
        if (low >= high || high < start || low > end)
            continue;
        ranges[i].end = low;
        start = low < start ? low : start;
        end = high > end ? high : end;
    }
    store_range(start, end);
    unlock_ranges();
}

/* Removes the addresses from `start` to `end`, which are about to be unmapped. */
static void
remove_range(uintptr_t start, uintptr_t end)
{
    lock_ranges();
    for (size_t i = 0; i < RANGES; i++) {
        uintptr_t low = ranges[i].start;
        uintptr_t high = ranges[i].end;
        if (low >= high || high <= start || low >= end)
            continue;
        ranges[i].end = low;
        if (low < start)
            store_range(low, start);
        if (high > end)
            store_range(end, high);
    }
    unlock_ranges();
}

/* Replacement of mmap() for runtime/cgo: also records the range. */
void *
__wrap_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    void *mapped = __real_mmap(at, size, protection, flags, fd, offset);
    if (mapped != MAP_FAILED)
        add_range((uintptr_t)mapped, find_end(mapped, size));
    return mapped;
}

/* Replacement of munmap() for runtime/cgo: also removes the range from the record. */
int
__wrap_munmap(void *at, size_t size)
{
    remove_range((uintptr_t)at, find_end(at, size));
    return __real_munmap(at, size);
}

int32_t
unmap_memory(void)
{
    for (size_t i = 0; i < RANGES; i++) {
        uintptr_t start = ranges[i].start;
        uintptr_t end = ranges[i].end;
        ranges[i].end = start;
        if (start < end)
            (void)__real_munmap((void *)start, end - start);
    }
    return 0;
}

#else /* a child cannot start the library again */

int32_t
unmap_memory(void)
{
    return 0;
}

#endif
