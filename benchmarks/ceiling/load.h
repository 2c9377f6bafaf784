/*
 * load.h: the declarations that the parts of the load generator share.
 *
 *   epoll_load.c    the command line, connections, one message after the other
 *   load_window.c   the measured window, and the latencies in it
 *   load_pipe.c     the pipe modes, which need no poller
 *   load_tls.c      TLS by OpenSSL; empty without -DWITH_TLS
 *   load_websocket.c  the request and the frames of a WebSocket
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

/* Returns the message of a given size: printable bytes, with a single newline at the end. */
char *payload(size_t size);

/* ---- load_window.c -----------------------------------------------------------
 *
 * The calls of a window: window_open() once, window_warm() as soon as every connection has
 * had an answer, window_moved() after every poll until it returns 1, window_print().  The
 * warm-up starts with window_warm(); recording starts after the warm-up, a
 * pause, and the poll that takes the answers of the pause. */

/* The monotonic clock in nanoseconds. */
int64_t clock_ns(void);

/* Sets the seconds of warm-up and of measuring. */
void window_open(double warmup, double seconds);

/* Begins the warm-up; a second call has no effect. */
void window_warm(int64_t now);

/* Updates the window for the time `now` and the number of answered messages; returns 1 once
 * the window is over.  Exits with an error if no answer came for STALL seconds, or if a
 * connection never had one. */
int window_moved(int64_t now, int64_t messages);

/* Returns the nanoseconds of the pauses since the last call, in which no message was sent or
 * received.  They are no part of the window: the caller adds them to times of sending. */
int64_t window_paused(void);

/* Returns 1 from the begin of the window to its end. */
int window_recording(void);

/* Records one answer's latency, if the window has begun. */
void window_answer(int64_t ns);

/* Prints the window's JSON object, with `more` as its last members: empty, or beginning with a
 * comma. */
void window_print(const char *more);

/* ---- load_pipe.c ------------------------------------------------------------- */

/* Measures a whole window: writes to, or reads from, the FIFO at a path.  A message
 * is `size` bytes, independent of the calls that moved them.  The pipe's capacity is set
 * to `capacity` bytes; 0 leaves it unchanged. */
void pipe_feed(const char *path, size_t size, int capacity);
void pipe_drain(const char *path, size_t size, int capacity);

/* ---- load_websocket.c ----------------------------------------------------------- */

/* The request that opens a WebSocket. */
extern const char websocket_request[];

/* Returns a binary frame with a payload, and sets *length to its size.  A client's frame is
 * masked, by zeros, so that its payload is unchanged. */
char *websocket_frame(const char *payload, size_t size, int masked, size_t *length);

/* ---- load_tls.c ----------------------------------------------------------------
 *
 * A session is the TLS state of one connection.  It reads from the socket itself, but
 * collects the bytes to write, so that the caller sends a message by one call. */

typedef struct tls_session tls_session;

/* Returns a new session of a connected socket, before its handshake. */
tls_session *tls_new(int fd);

/* Returns 1 when the handshake is complete, 0 while it needs more bytes from the server. */
int tls_handshake(tls_session *session);

/* Encrypts a message into the unsent bytes. */
void tls_write(tls_session *session, const char *data, size_t length);

/* Decrypts at most `room` bytes; returns 0 if no record is complete. */
size_t tls_read(tls_session *session, char *into, size_t room);

/* Receives and counts without decrypting; after the first call tls_read() cannot be used. */
size_t tls_skim(tls_session *session);

/* Returns the number of unsent bytes, and sets *bytes to them. */
size_t tls_unsent(const tls_session *session, const char **bytes);

/* Removes sent bytes from the unsent ones. */
void tls_sent(tls_session *session, size_t length);

#endif
