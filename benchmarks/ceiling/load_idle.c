/*
 * load_idle.c: idle connections.
 *
 * The connections are opened in batches, and the last of a batch sends a question: the
 * server accepts in order, so an answer means that all earlier ones have been accepted.  The
 * first batch also pays for the server's one-time allocations, and is not counted.
 */
#define _GNU_SOURCE
#include "load.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { BATCH = 500, LONGEST = 4096 };

/* Returns a connected socket. */
static int open_one(int port) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fail("socket");
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        fail("connect");
    return fd;
}

/* Sends a question and waits for the answer, for at most 10 seconds. */
static void ask(int fd, const char *question, size_t size) {
    char answer[LONGEST];
    struct timeval patience = {.tv_sec = 10};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (size > sizeof answer)
        refuse("SIZE is at most 4096 here");
    if (send(fd, question, size, MSG_NOSIGNAL) != (ssize_t)size)
        fail("send");
    if (recv(fd, answer, size, MSG_WAITALL) != (ssize_t)size)
        refuse("one of the connections had no answer for 10 seconds");
}

void permit_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        fail("getrlimit");
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Opens one batch, then the connections whose memory counts; the process's end closes them. */
void idle_hold(int port, int connections, const char *question, size_t size) {
    permit_files();
    for (int i = 0; i < BATCH + connections; i++) {
        int fd = open_one(port);
        if (i % BATCH == BATCH - 1 || i == BATCH + connections - 1)
            ask(fd, question, size);
        if (i == BATCH - 1)
            window_pause("begin");
    }
    window_pause("end");
    printf("{\"messages\": %d}\n", connections);
}
