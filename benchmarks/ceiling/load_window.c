/*
 * load_window.c: the measured window of the load generator, and the latencies in it.
 *
 * At both ends of the window the generator writes a word and waits for a line: meanwhile
 * benchmarks/windows.py takes the accounts of the processes and of their cores.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STALL = 10 };

void fail(const char *what) {
    fprintf(stderr, "epoll_load: %s: %s\n", what, strerror(errno));
    exit(1);
}

void refuse(const char *sentence) {
    fprintf(stderr, "epoll_load: %s\n", sentence);
    exit(1);
}

char *payload(size_t size) {
    char *bytes = malloc(size);
    if (bytes == NULL)
        fail("malloc");
    for (size_t i = 0; i < size; i++)
        bytes[i] = (char)(' ' + i % 95);
    bytes[size - 1] = '\n';
    return bytes;
}

int64_t clock_ns(void) {
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) < 0)
        fail("clock_gettime");
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- latencies ------------------------------------------------------------------ */

/* The histogram of latencies: 64 linear steps in each octave of nanoseconds, exact to 2 %. */
enum { BITS = 6, STEPS = 1 << BITS, BUCKETS = 64 * STEPS };
static int64_t histogram[BUCKETS];

/* Returns the histogram's bucket for a latency. */
static int bucket_of(int64_t ns) {
    if (ns < STEPS)
        return (int)(ns < 0 ? 0 : ns);
    int octave = 63 - __builtin_clzll((unsigned long long)ns);
    return (octave - BITS + 1) * STEPS + (int)((ns >> (octave - BITS)) - STEPS);
}

/* Returns the lowest latency of a bucket, in microseconds. */
static double bucket_us(int bucket) {
    if (bucket < STEPS)
        return bucket / 1e3;
    int octave = bucket / STEPS + BITS - 1;
    return (double)((int64_t)(bucket % STEPS + STEPS) << (octave - BITS)) / 1e3;
}

/* Returns the bucket, in microseconds, up to which a share (0 to 1) of the latencies are; 0
 * without answers. */
static double percentile(double share) {
    int64_t total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++)
        total += histogram[i];
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (seen > 0 && (double)seen >= share * (double)total)
            return bucket_us(i);
    }
    return 0;
}

/* ---- the window ------------------------------------------------------------------ */

static int warm, announced, recording;
static int64_t opened, start, stop, warmup_ns, window_ns, moved_at, moved;
static int64_t began_at, began_messages, ended_at, ended_messages, paused_ns;

/* Writes a word, and waits for a line: the reader takes its accounts meanwhile. */
static void window_pause(const char *word) {
    char line[8];
    int64_t began = clock_ns();
    printf("%s\n", word);
    fflush(stdout);
    do
        errno = 0;
    while (fgets(line, sizeof line, stdin) == NULL && errno == EINTR);
    paused_ns += clock_ns() - began;
}

int64_t window_paused(void) {
    int64_t found = paused_ns;
    paused_ns = 0;
    return found;
}

void window_open(double warmup, double seconds) {
    opened = moved_at = clock_ns();
    warmup_ns = (int64_t)(warmup * 1e9);
    window_ns = (int64_t)(seconds * 1e9);
}

void window_warm(int64_t now) {
    if (warm)
        return;
    warm = 1;
    start = now + warmup_ns;
}

int window_moved(int64_t now, int64_t messages) {
    const int64_t stall = (int64_t)STALL * 1000000000;
    if (!warm && now - opened > stall)
        refuse("a connection had no answer for 10 seconds");
    if (messages != moved) {
        moved = messages;
        moved_at = now;
    } else if (now - moved_at > stall) {
        refuse("no answer came for 10 seconds");
    }
    if (warm && !announced && now >= start) {
        announced = 1;
        window_pause("begin");
        moved_at = clock_ns();
    } else if (announced && !recording) {
        /* On a busy machine the pause may be longer than the window, and as a part of it would
         * leave time for one message per connection.  Answers that came during the pause were
         * counted by the poll after it, and belong to no window, either. */
        recording = 1;
        began_messages = messages;
        began_at = now;
        stop = began_at + window_ns;
    } else if (recording && now >= stop && messages > began_messages) {
        ended_at = now;
        ended_messages = messages;
        window_pause("end");
        return 1;
    }
    return 0;
}

void window_answer(int64_t ns) {
    if (recording)
        histogram[bucket_of(ns)]++;
}

int window_recording(void) {
    return recording && ended_at == 0;
}

void window_print(const char *more) {
    printf("{\"messages\": %lld, \"seconds\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f%s}\n",
           (long long)(ended_messages - began_messages), (double)(ended_at - began_at) / 1e9,
           percentile(0.5), percentile(0.99), more);
}
