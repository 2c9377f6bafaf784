/*
 * epoll_pipe.c: the ceiling of the pipe cases.  One end of a FIFO, with only the
 * system calls that any loop needs: epoll, and a read or a write of as many bytes
 * as the pipe has or accepts.
 *
 * Usage: epoll_pipe read|write PATH.  Prints "path PATH" and runs until it is
 * killed, also when the other end has been closed.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BUFFER = 256 * 1024, BLOCK = 64 * 1024 };

static char buffer[BUFFER];

/* Prints a failed call with the text of errno, and exits with 1. */
static void fail(const char *call) {
    fprintf(stderr, "epoll_pipe: %s: %s\n", call, strerror(errno));
    exit(1);
}

/* Opens the FIFO, which waits for the other end, and reads or writes until it is killed. */
int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: epoll_pipe read|write PATH\n");
        return 1;
    }
    int reading = strcmp(argv[1], "read") == 0;
    printf("path %s\n", argv[2]);
    fflush(stdout);
    int fd = open(argv[2], (reading ? O_RDONLY : O_WRONLY) | O_CLOEXEC);
    if (fd < 0)
        fail("open");
    if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0)
        fail("fcntl");
    int poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = reading ? EPOLLIN : EPOLLOUT};
    if (poller < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, fd, &event) < 0)
        fail("epoll_ctl");
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        if (epoll_wait(poller, &event, 1, -1) < 0 && errno != EINTR)
            fail("epoll_wait");
        ssize_t n = reading ? read(fd, buffer, BUFFER) : write(fd, buffer, BLOCK);
        if (n == 0 || (n < 0 && errno == EPIPE))
            pause();
        else if (n < 0 && errno != EAGAIN && errno != EINTR)
            fail(argv[1]);
    }
}
