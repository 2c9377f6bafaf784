/*
 * datagram.h: the state of a datagram transport, and what its files share.
 *
 *   datagram.c           birth, start, closing, loss, finalizer
 *   datagram_send.c      sendto, and the queue of what the kernel had no room for
 *   datagram_receive.c   what was received, on its way to the protocol
 *   datagram_type.c      methods, attributes, repr, the type
 *
 * The life of a transport:
 *
 *   made ------> started ------> closing -------> lost
 *     |             |              ^  (queue still to be sent: stays in the reactor)
 *     |             +-- abort, ----+
 *     |                 fatal error
 *     +- receiving waits until connection_made was called; sending does not
 *
 * Go receives and C sends: asyncio makes the system call within sendto() and calls
 * error_received() there, so putting it off would be seen.  It is made without
 * leaving the thread's hold of the GIL, as it cannot block.
 *
 * "open" says that the reactor knows the fd; the registry then holds a reference to
 * the transport.  What asyncio's _FlowControlMixin does (write limits, pausing and
 * resuming the protocol, get_extra_info) is done by its own code on its own slots,
 * for it is needed only when the kernel is out of room.
 */
#ifndef GOLOOP_DATAGRAM_H
#define GOLOOP_DATAGRAM_H

#include "transports/stream.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* A datagram that waits to be sent: exact bytes, and an address or None. */
typedef struct gl_parcel {
    PyObject *data, *addr;
} gl_parcel;

/* An address that was received from, as the kernel and as Python have it. */
typedef struct gl_peer {
    PyObject *object;             /* NULL: the place is empty */
    uint32_t len;
    uint8_t raw[sizeof(struct sockaddr_in6)];
} gl_peer;

#define GL_PEERS_MAX 256u

/* What asyncio counts for each queued datagram beside its bytes. */
#if PY_VERSION_HEX >= 0x030D0000
#define GL_DATAGRAM_HEADER 8
#else
#define GL_DATAGRAM_HEADER 0
#endif

typedef struct gl_datagram {
    PyObject_HEAD
    /* The slots of asyncio.transports.BaseTransport and _FlowControlMixin, as in
     * gl_stream, but all in use. */
    PyObject *extra;
    PyObject *high_water;
    PyObject *slot_loop;          /* what the mix-in's code takes for the loop */
    PyObject *low_water;
    PyObject *slot_protocol_paused;

    PyObject *dict;
    PyObject *weakrefs;
    gl_loop *loop;                /* NULL once the transport is lost */
    PyObject *protocol;           /* likewise */
    gl_lease lease;               /* the descriptor; its owner is the socket.  Empty once it
                                   * is closed */
    PyObject *address;            /* remote_addr, or None */
    PyObject *context;            /* what the protocol's callbacks run in */

    int fd_shown;                 /* the number for repr, kept after closing */
    int family;
    uint32_t id, gen;             /* valid while open */
    uint32_t want;                /* the directions that the reactor was told */
    uint32_t conn_lost;           /* asyncio's _conn_lost: > 0 once connection_lost is
                                   * scheduled; counts the datagrams that came too late */
    bool open;                    /* registered with the reactor */
    bool started;                 /* connection_made was called */
    bool closing;
    bool paused;                  /* by pause_reading */
    bool fixed;                   /* `address` is true: no other may be given */
    bool connected;               /* the socket has a peer: send, not sendto */
    bool warned;                  /* the finalizer has done its work */
    bool sync_scheduled;
    bool delivering;              /* _deliver_held runs or is scheduled */

    /* Sending (datagram_send.c). */
    bool blocked;                 /* the kernel had no room: it tells when it has */
    Py_ssize_t queued;            /* the write buffer's size in asyncio's counting */
    gl_parcel *parcel;            /* ring, or NULL */
    uint32_t parcel_mask, parcel_head, parcel_count;
    PyObject *target;             /* the last address that was sent to ... */
    uint32_t target_len;          /* ... and its raw form */
    uint8_t target_raw[GL_SOCKADDR_MAX];

    /* Receiving (datagram_receive.c). */
    PyObject *held;               /* list of what came while paused, or NULL */
    gl_peer *peers;               /* table by hash of the raw address */
    uint32_t peers_mask, peers_missed;
    gl_peer *peer_last;           /* who sent the last one, or NULL */
    gl_peer peers_inline[1];
} gl_datagram;

/* ---- datagram.c ------------------------------------------------------------------ */

/* Tells the reactor what is wanted now; from a stranger's thread: later. */
GL_PRIVATE int datagram_sync(gl_datagram *d);
/* Leaves the reactor and drops the queue. Keep a reference. */
GL_PRIVATE void datagram_leave(gl_datagram *d);
/* asyncio's methods of these names. */
GL_PRIVATE int datagram_force_close(gl_datagram *d, PyObject *exc);
GL_PRIVATE int datagram_fatal_error(gl_datagram *d, PyObject *exc, const char *message);
/* The same with the exception that is set; -1, and it stays set, for SystemExit and
 * KeyboardInterrupt. */
GL_PRIVATE int datagram_fatal_current(gl_datagram *d, const char *message);
GL_PRIVATE int datagram_lost(gl_datagram *d, PyObject *exc);
GL_PRIVATE bool datagram_reading_wanted(gl_datagram *d);
/* Schedules the method `name` of the transport, without or with one argument. */
GL_PRIVATE int datagram_call_soon(gl_datagram *d, PyObject *name, PyObject *arg);
/* Calls protocol.error_received; takes over exc. */
GL_PRIVATE int datagram_tell_error(gl_datagram *d, PyObject *exc);

/* ---- datagram_send.c --------------------------------------------------------------- */

GL_PRIVATE void datagram_drop_queue(gl_datagram *d);
/* The kernel has room again. */
GL_PRIVATE int datagram_drain(gl_datagram *d);

/* ---- datagram_receive.c ------------------------------------------------------------ */

GL_PRIVATE void datagram_forget_peers(gl_datagram *d);

/* ---- datagram.c ------------------------------------------------------------------------------ */

GL_PRIVATE void datagram_dealloc(PyObject *self);
GL_PRIVATE int datagram_clear(PyObject *self);
GL_PRIVATE int datagram_traverse(PyObject *self, visitproc visit, void *arg);
/* __del__: the last reference goes while the socket is open. A registered transport
 * is kept alive by the loop, so this one either never started, or its loop was
 * closed or is garbage itself. */
GL_PRIVATE void datagram_finalize(PyObject *self);
GL_PRIVATE int datagram_close(gl_datagram *d);
/* Runs behind connection_made, in the same iteration: receiving starts, and who
 * waits for the transport is told. */
GL_PRIVATE PyObject *datagram_start_method(gl_datagram *d, PyObject *waiter);
GL_PRIVATE int datagram_init(PyObject *self, PyObject *args, PyObject *kwargs);
GL_PRIVATE bool datagram_blocks_number(PyObject *transport);
/* The empty state, in which every method does nothing. */
GL_PRIVATE PyObject *datagram_new(PyTypeObject *type, PyObject *Py_UNUSED(args),
                                  PyObject *Py_UNUSED(kwargs));
GL_PRIVATE void datagram_orphan(PyObject *owner);
GL_PRIVATE PyObject *datagram_sync_method(gl_datagram *d, PyObject *Py_UNUSED(ignored));

/* ---- datagram_receive.c ---------------------------------------------------------------------- */

GL_PRIVATE PyObject *datagram_resume_reading(gl_datagram *d, PyObject *Py_UNUSED(ignored));
GL_PRIVATE PyObject *datagram_pause_reading(gl_datagram *d, PyObject *Py_UNUSED(ignored));
/* Runs as a handle, which has the transport's context and reports an exception; the
 * rest is delivered then by another. */
GL_PRIVATE PyObject *datagram_deliver_held_method(gl_datagram *d, PyObject *Py_UNUSED(ignored));
GL_PRIVATE int datagram_complete(gl_loop *loop, PyObject *owner, const gl_completion *c);

/* ---- datagram_send.c ------------------------------------------------------------------------- */

GL_PRIVATE PyObject *datagram_sendto(gl_datagram *d, PyObject *data, PyObject *addr);

#endif /* GOLOOP_DATAGRAM_H */
