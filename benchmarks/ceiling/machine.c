/*
 * machine.c: the costs of the machine that decide what a loop can gain, in a moment.
 *
 * Usage: machine CORE CORE.  Prints one JSON object:
 *   null_call_ns  a system call that does nothing (getppid), the median of the batches
 *   wake_us       half of a round trip between two threads, one on each core, that wake each
 *                 other by an eventfd; omitted if the two cores are the same one
 *   hypervisor    the name that the hypervisor gives by the instruction CPUID; omitted if
 *                 there is none, or on another architecture than x86
 * Exits with 1 and an error message if a call fails.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

enum { BATCHES = 21, CALLS = 2000, TRIPS = 100, NAME = 12 };

/* The eventfds, each for one direction. */
static int there, back;

static void fail(const char *what) {
    fprintf(stderr, "machine: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int64_t clock_ns(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) < 0)
        fail("clock_gettime");
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values) {
    qsort(values, BATCHES, sizeof *values, by_value);
    return values[BATCHES / 2];
}

static void pin(int core) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (sched_setaffinity(0, sizeof one, &one) < 0) /* 0: the calling thread */
        fail("sched_setaffinity");
}

static double null_call_ns(void) {
    double each[BATCHES];
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t began = clock_ns();
        for (int i = 0; i < CALLS; i++)
            syscall(SYS_getppid); /* not getppid(): a C library may cache the answer */
        each[batch] = (double)(clock_ns() - began) / CALLS;
    }
    return median(each);
}

/* ---- two threads ------------------------------------------------------------------ */

static void wake(int fd) {
    uint64_t one = 1;
    if (write(fd, &one, sizeof one) != (ssize_t)sizeof one)
        fail("write");
}

static void await(int fd) {
    uint64_t count;
    if (read(fd, &count, sizeof count) != (ssize_t)sizeof count)
        fail("read");
}

static void *answer(void *core) {
    pin(*(int *)core);
    for (int i = 0; i < BATCHES * TRIPS; i++) {
        await(there);
        wake(back);
    }
    return NULL;
}

static double wake_us(int mine, int other) {
    double each[BATCHES];
    pthread_t thread;
    there = eventfd(0, EFD_CLOEXEC);
    back = eventfd(0, EFD_CLOEXEC);
    if (there < 0 || back < 0)
        fail("eventfd");
    pin(mine);
    errno = pthread_create(&thread, NULL, answer, &other);
    if (errno != 0)
        fail("pthread_create");
    for (int batch = 0; batch < BATCHES; batch++) {
        int64_t began = clock_ns();
        for (int i = 0; i < TRIPS; i++) {
            wake(there);
            await(back);
        }
        each[batch] = (double)(clock_ns() - began) / TRIPS / 2e3;
    }
    pthread_join(thread, NULL);
    return median(each);
}

/* ---- the hypervisor ---------------------------------------------------------------- */

/* Writes the hypervisor's name, or the empty string.  Bit 31 of ecx of CPUID's leaf 1 says
 * that there is a hypervisor; leaf 0x40000000 has its name in three registers. */
static void find_hypervisor(char name[NAME + 1]) {
    memset(name, 0, NAME + 1);
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, words[3], c;
    if (!__get_cpuid(1, &a, &words[0], &c, &words[1]) || !(c >> 31))
        return;
    __cpuid(0x40000000, a, words[0], words[1], words[2]);
    memcpy(name, words, NAME);
    for (int i = 0; i < NAME && name[i] != 0; i++)
        if (name[i] < ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
            name[i] = '?';
#endif
}

int main(int argc, char **argv) {
    char name[NAME + 1];
    if (argc != 3) {
        fprintf(stderr, "machine: usage: CORE CORE\n");
        return 1;
    }
    int mine = atoi(argv[1]), other = atoi(argv[2]);
    pin(mine);
    printf("{\"null_call_ns\": %.1f", null_call_ns());
    if (mine != other)
        printf(", \"wake_us\": %.2f", wake_us(mine, other));
    find_hypervisor(name);
    if (name[0] != 0)
        printf(", \"hypervisor\": \"%s\"", name);
    printf("}\n");
    return 0;
}
