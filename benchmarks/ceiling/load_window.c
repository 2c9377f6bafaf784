/*
 * load_window.c: the measured window of the load generator.
 *
 * This file owns the clocks, the latencies, the server's CPU time by mode and its
 * instructions, and the account of the two cores: their idle time, and the time that the
 * host took (steal).  Together with the CPU time of client and server these give the CPU
 * time of other programs, by which benchmarks/stats.py recognizes disturbed windows.
 */
#define _GNU_SOURCE
#include "load.h"

#include <dirent.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

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

/* ---- clocks and latencies ------------------------------------------------------ */

/* Returns a clock's nanoseconds; exits if it cannot be read. */
static int64_t read_clock(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) < 0)
        fail("clock_gettime");
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_ns(void) { return read_clock(CLOCK_MONOTONIC); }

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

/* ---- the cores ------------------------------------------------------------------ */

/* Seconds since the start of the system, summed over the two cores. */
typedef struct account {
    double idle, steal, interrupts;
} account;

static cpu_set_t cores; /* client's and server's; empty if one of them is not pinned */

/* Finds the cores, if client and server are pinned to one core each. */
static void find_cores(int server) {
    cpu_set_t mine, theirs;
    if (sched_getaffinity(0, sizeof mine, &mine) == 0 && CPU_COUNT(&mine) == 1 &&
        sched_getaffinity(server, sizeof theirs, &theirs) == 0 &&
        CPU_COUNT(&theirs) == 1)
        CPU_OR(&cores, &mine, &theirs);
}

/* Returns the account of the two cores from /proc/stat; zeros if it cannot be read. */
static account read_account(void) {
    account sum = {0, 0, 0};
    if (CPU_COUNT(&cores) == 0)
        return sum;
    FILE *file = fopen("/proc/stat", "r");
    if (file == NULL)
        return sum;
    char line[512];
    double tick = 1.0 / (double)sysconf(_SC_CLK_TCK);
    while (fgets(line, sizeof line, file) != NULL && strncmp(line, "cpu", 3) == 0) {
        int core;
        unsigned long long idle, iowait, irq, softirq, steal;
        int found = sscanf(line, "cpu%d %*u %*u %*u %llu %llu %llu %llu %llu", &core,
                           &idle, &iowait, &irq, &softirq, &steal);
        if (found != 6 || core >= CPU_SETSIZE || !CPU_ISSET(core, &cores))
            continue; /* the first line is the sum of all cores, without a number */
        sum.idle += (double)(idle + iowait) * tick;
        sum.interrupts += (double)(irq + softirq) * tick;
        sum.steal += (double)steal * tick;
    }
    fclose(file);
    return sum;
}

/* ---- the server's CPU --------------------------------------------------------------- */

/* The CPU time of all of the server's threads in user mode and in the kernel: fields 14 and
 * 15 of /proc/PID/stat (proc_pid_stat(5)).  The unit of a tick is coarse, so only the shares
 * of the two are used. */
typedef struct modes {
    double user, system;
} modes;

/* Returns the server's CPU time by mode, in ticks; zeros if it cannot be read. */
static modes read_modes(int server) {
    modes found = {0, 0};
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", server);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return found;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    unsigned long long user, system;
    const char *rest = strrchr(text, ')'); /* the name may contain any character */
    if (rest != NULL &&
        sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
               &user, &system) == 2)
        found = (modes){(double)user, (double)system};
    return found;
}

/* Counters of the server's instructions: one for each thread that exists when the window
 * opens; threads that these start inherit it.  If the machine has no such counter, or denies
 * access to it, instructions are not reported. */
enum { THREADS = 256 };
static int counters[THREADS], counting, user_only;

/* Opens the counter of one thread; -1 with errno. */
static int open_counter(int thread) {
    struct perf_event_attr wanted = {
        .type = PERF_TYPE_HARDWARE,
        .size = sizeof wanted,
        .config = PERF_COUNT_HW_INSTRUCTIONS,
        .inherit = 1,
        .exclude_hv = 1,
        .exclude_kernel = user_only,
    };
    return (int)syscall(SYS_perf_event_open, &wanted, thread, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Closes all counters. */
static void close_counters(void) {
    while (counting > 0)
        close(counters[--counting]);
}

/* Opens the counters of all threads, or of none: a partial sum would be mistaken for the sum. */
static void count_threads(int server) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", server);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(threads)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        int fd = counting < THREADS ? open_counter(atoi(entry->d_name)) : -1;
        if (fd < 0 && errno == ESRCH)
            continue; /* the thread has ended */
        if (fd < 0) {
            close_counters();
            break;
        }
        counters[counting++] = fd;
    }
    closedir(threads);
}

/* Opens counters of all instructions, or of those in user mode, or none. */
static void open_counters(int server) {
    count_threads(server);
    if (counting > 0)
        return;
    user_only = 1; /* /proc/sys/kernel/perf_event_paranoid may allow user mode only */
    count_threads(server);
}

/* Returns the sum of the counters. */
static int64_t read_counters(void) {
    int64_t sum = 0, one;
    for (int i = 0; i < counting; i++)
        if (read(counters[i], &one, sizeof one) == (ssize_t)sizeof one)
            sum += one;
    return sum;
}

/* ---- the window ------------------------------------------------------------------ */

typedef struct reading {
    int64_t at, messages, client_cpu, server_cpu, instructions;
    modes modes;
    account cores;
} reading;

static int warm, recording;
static int64_t opened, start, stop, warmup_ns, window_ns, moved_at, moved;
static int server_process;
static clockid_t server_clock;
/* The clocks of further processes at the client's end, such as a database of the server. */
enum { OTHERS = 1024 };
static clockid_t other_clocks[OTHERS];
static int others;
static reading first, last;

/* Returns the CPU time of this process and of the others at its end.  A process that has ended
 * does not count. */
static int64_t read_client_cpu(void) {
    int64_t sum = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < others; i++) {
        struct timespec t;
        if (clock_gettime(other_clocks[i], &t) == 0)
            sum += (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    return sum;
}

/* Reads all clocks, accounts and counters at once, for the begin or the end of the window. */
static reading take(int64_t now, int64_t messages) {
    return (reading){
        .at = now,
        .messages = messages,
        .cores = read_account(),
        .client_cpu = read_client_cpu(),
        .server_cpu = read_clock(server_clock),
        .modes = read_modes(server_process),
        .instructions = read_counters(),
    };
}

void window_open(double warmup, double seconds, const char *processes) {
    int server = atoi(processes);
    if (clock_getcpuclockid(server, &server_clock) != 0)
        refuse("the server's CPU clock can't be read");
    for (const char *next = processes; (next = strchr(next, ',')) != NULL && others < OTHERS;)
        others += clock_getcpuclockid(atoi(++next), &other_clocks[others]) == 0;
    server_process = server;
    find_cores(server);
    open_counters(server);
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
    if (!recording && warm && now >= start) {
        recording = 1;
        first = take(now, messages);
        stop = now + window_ns;
    } else if (recording && now >= stop && messages > first.messages) {
        last = take(now, messages);
        return 1;
    }
    return 0;
}

void window_answer(int64_t ns) {
    if (recording)
        histogram[bucket_of(ns)]++;
}

void window_print(void) {
    double cpu = (double)(last.server_cpu - first.server_cpu) / 1e9;
    double user = last.modes.user - first.modes.user;
    double ticks = user + last.modes.system - first.modes.system;
    printf("{\"messages\": %lld, \"seconds\": %.6f, \"client_cpu\": %.6f, "
           "\"server_cpu\": %.6f, \"p50_us\": %.2f, \"p99_us\": %.2f, "
           "\"cores\": %d, \"idle\": %.2f, \"steal\": %.2f, \"interrupts\": %.2f",
           (long long)(last.messages - first.messages), (double)(last.at - first.at) / 1e9,
           (double)(last.client_cpu - first.client_cpu) / 1e9, cpu, percentile(0.5),
           percentile(0.99), CPU_COUNT(&cores), last.cores.idle - first.cores.idle,
           last.cores.steal - first.cores.steal,
           last.cores.interrupts - first.cores.interrupts);
    if (ticks > 0)
        printf(", \"server_user\": %.6f, \"server_system\": %.6f", cpu * user / ticks,
               cpu * (ticks - user) / ticks);
    if (counting > 0)
        printf(", \"%sinstructions\": %lld", user_only ? "user_" : "",
               (long long)(last.instructions - first.instructions));
    printf("}\n");
}
