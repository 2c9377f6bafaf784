/*
 * load.h: what the parts of the load generator share.
 *
 *   epoll_load.c    the command line, connections, one message after the other
 *   load_window.c   the measured window: clocks, latencies, what others used
 *   load_pipe.c     the pipe modes, which need no poller
 *   load_idle.c     connections that say nothing, and the server's memory
 *   load_tls.c      TLS by OpenSSL; empty without -DWITH_TLS
 *
 * All of it is one thread, and each part keeps its own state.
 */
#ifndef LOAD_H
#define LOAD_H

#include <stddef.h>
#include <stdint.h>

/* Print a sentence and exit with 1; fail() adds the text of errno. */
_Noreturn void fail(const char *what);
_Noreturn void refuse(const char *sentence);

/* The bytes that are sent: printable, and the last one their only newline. */
char *payload(size_t size);

/* ---- load_window.c -----------------------------------------------------------
 *
 * A window's life: window_open() once, window_warm() once every connection has had an
 * answer, window_moved() after every poll until it returns 1, window_print().  From
 * window_warm() on it lets the warm-up pass, then records. */

/* The monotonic clock in nanoseconds. */
int64_t clock_ns(void);

/* Seconds of warm-up and of measuring, and the server's process. */
void window_open(double warmup, double seconds, int server);

/* Begins the warm-up; a second call is none. */
void window_warm(int64_t now);

/* Looks at the time `now` with so many messages answered; 1 once the window is over.
 * Refuses where nothing has been answered for STALL seconds, or where some connection
 * never has. */
int window_moved(int64_t now, int64_t messages);

/* Records one answer's latency, if the window has begun. */
void window_answer(int64_t ns);

/* Prints the window's JSON object. */
void window_print(void);

/* ---- load_pipe.c ------------------------------------------------------------- */

/* Measures a whole window: writes to, or reads from, the FIFO at a path.  A message
 * is `size` bytes, whatever the calls that moved them.  The pipe gets `capacity`
 * bytes; 0 leaves it as it is. */
void pipe_feed(const char *path, size_t size, int capacity);
void pipe_drain(const char *path, size_t size, int capacity);

/* ---- load_idle.c ------------------------------------------------------------- */

/* Opens so many connections more than one batch, asks on some, and prints by how many
 * bytes the server's resident memory grew for each, as a JSON object. */
void idle_hold(int port, int connections, const char *question, size_t size, int server);

/* ---- load_tls.c ----------------------------------------------------------------
 *
 * One session is one connection's TLS.  It reads from the socket itself, but what it
 * writes is collected, so that the caller sends a message by one call. */

typedef struct tls_session tls_session;

tls_session *tls_new(int fd);

/* 1 when the handshake is complete, 0 while it needs more of the server. */
int tls_handshake(tls_session *session);

/* Encrypts. */
void tls_write(tls_session *session, const char *data, size_t length);

/* Decrypts at most `room` bytes; 0 while there is nothing. */
size_t tls_read(tls_session *session, char *into, size_t room);

/* Receives and counts without decrypting; after the first call there is no other way. */
size_t tls_skim(tls_session *session);

/* What is to be sent, and that it has been. */
size_t tls_unsent(const tls_session *session, const char **bytes);
void tls_sent(tls_session *session, size_t length);

#endif
