/*
 * load_pipe.c: the other end of a pipe that a loop reads or writes.
 *
 * Both modes move bytes by blocking calls, as fast as the loop reads or writes them.
 * They must use less CPU than the loop.  So the feeder lends its pages to the kernel
 * (vmsplice), and only the reader copies; the drain has the kernel move the pipe's
 * bytes to /dev/null (splice).  Neither checks the contents: the tests of the pipe
 * transports do.
 */
#define _GNU_SOURCE
#include "load.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum {
    BLOCK = 64 * 1024, /* a pipe's usual capacity */
    MARGIN = 64 * 1024
};

/* SIGALRM interrupts a blocked call, so that a loop that has stopped reading or writing is
 * noticed. */
static void wake(int signal) { (void)signal; }

/* Starts the interval timer; a closed pipe is an error (EPIPE) and not a signal. */
static void wake_up_every_second(void) {
    struct sigaction action = {.sa_handler = wake}; /* no SA_RESTART */
    struct itimerval second = {.it_interval.tv_sec = 1, .it_value.tv_sec = 1};
    if (sigaction(SIGALRM, &action, NULL) < 0 ||
        setitimer(ITIMER_REAL, &second, NULL) < 0)
        fail("setitimer");
    signal(SIGPIPE, SIG_IGN);
}

/* Sets a pipe's capacity, if one is asked for, and returns it. */
static uint64_t widen(int fd, int capacity) {
    if (capacity > 0 && fcntl(fd, F_SETPIPE_SZ, capacity) < 0)
        fail("F_SETPIPE_SZ");
    return (uint64_t)fcntl(fd, F_GETPIPE_SZ);
}

/* Repeats a call that moves bytes until the window is over.  The warm-up begins when more
 * bytes have passed than the pipe's capacity: from then on the loop reads or writes. */
static void pump(ssize_t (*move)(int fd), int fd, size_t size, uint64_t capacity,
                 const char *name, const char *ended) {
    uint64_t bytes = 0;
    wake_up_every_second();
    for (;;) {
        ssize_t n = move(fd);
        if (n > 0) {
            bytes += (uint64_t)n;
            if (bytes > capacity + MARGIN)
                window_warm(clock_ns());
        } else if (n == 0 || errno == EPIPE) {
            refuse(ended);
        } else if (errno != EINTR) {
            fail(name);
        }
        if (window_moved(clock_ns(), (int64_t)(bytes / size)))
            return;
    }
}

static struct iovec block;

/* Writes the block, whose pages the kernel borrows. */
static ssize_t lend(int fd) { return vmsplice(fd, &block, 1, 0); }

/* Fills the block with a payload, and writes it again and again. */
void pipe_feed(const char *path, size_t size, int capacity) {
    block.iov_base = aligned_alloc(4096, BLOCK);
    block.iov_len = BLOCK;
    if (block.iov_base == NULL)
        fail("aligned_alloc");
    char *bytes = payload(BLOCK);
    for (size_t i = 0; i < BLOCK; i++)
        ((char *)block.iov_base)[i] = bytes[i];
    free(bytes);
    int fd = open(path, O_WRONLY | O_CLOEXEC); /* waits for the reader */
    if (fd < 0)
        fail("open");
    pump(lend, fd, size, widen(fd, capacity), "vmsplice", "the reader closed the pipe");
}

static int nowhere;

/* Moves the pipe's bytes to /dev/null. */
static ssize_t discard(int fd) {
    return splice(fd, NULL, nowhere, NULL, 16 * BLOCK, SPLICE_F_MOVE);
}

/* Opens both descriptors, and moves bytes until the window is over. */
void pipe_drain(const char *path, size_t size, int capacity) {
    nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int fd = open(path, O_RDONLY | O_CLOEXEC); /* waits for the writer */
    if (fd < 0 || nowhere < 0)
        fail("open");
    pump(discard, fd, size, widen(fd, capacity), "splice", "the writer closed the pipe");
}
