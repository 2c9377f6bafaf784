/*
 * sockop_calls.c: the system calls of sock_recv, sock_recv_into and sock_sendall.
 *
 * A call is made when the task of the operation runs.  If the loop has stopped after the poll that
 * found the socket ready, and the program closes the socket before the loop runs again, the call is
 * made before the close (sockop_attempt_early()).  asyncio has made it in the poll: its task gets
 * the bytes, and its peer the end of the stream, not the reset that unread bytes would cause.
 *
 * The calls use MSG_DONTWAIT: a socket in blocking mode does not stop the loop.
 */
#include "watch/private.h"

/* A step of sendall ends after this number of bytes: a peer that reads as fast as we send would
 * block the loop. */
#define MAX_SEND_STEP (256 * 1024)

/* An attempt is one system call, or several of sendall.  It returns 1 with the result of the
 * operation in *result, or 0 if the operation has to wait for the fd. */

/* Handles the errno of a failed call, and notes in op->refused whether it was EAGAIN.  Returns 0 if
 * the operation has to wait for the fd (EAGAIN) or was interrupted (EINTR), else -1 with
 * OSError. */
static int
sockop_call_failed(sockop *op, int err)
{
    op->refused = err == EAGAIN || err == EWOULDBLOCK;
    if (op->refused || err == EINTR)
        return 0;
    return gl_set_oserror(err);
}

/* Returns a lease of the socket's present number, for one call; it needs no release.  After the
 * socket's close() it is empty, and a call with it fails with EBADF. */
static inline gl_lease
sockop_lease(sockop *op)
{
    gl_lease lease = GL_NO_LEASE;
    lease.fd = gl_socket_number(op->sock);
    return lease;
}

/* Attempts sock_recv(): receives up to op->size bytes.  *result is a new bytes object. */
static int
try_recv(sockop *op, PyObject **result)
{
    uint8_t *scratch = gl_scratch_acquire(op->loop);
    if (scratch == NULL)
        return -1;
    gl_lease lease = sockop_lease(op);
    ssize_t got = gl_call_recv(&lease, scratch, (size_t)op->size, MSG_DONTWAIT);
    int err = errno;
    if (got >= 0)
        *result = PyBytes_FromStringAndSize((const char *)scratch, got);
    gl_scratch_release(op->loop, scratch);
    if (got < 0)
        return sockop_call_failed(op, err);
    gl_count_received(op->loop, got);
    if (*result)
        return 1;
    return -1;
}

/* Attempts sock_recv_into(): receives into the buffer.  *result is the number of bytes.  If `arg`
 * is not a writable buffer, calls the socket's own method, which raises the exception. */
static int
try_recv_into(sockop *op, PyObject **result)
{
    Py_buffer view;
    if (PyObject_GetBuffer(op->arg, &view, PyBUF_WRITABLE) < 0) {
        /* The socket's own method raises the exception. */
        PyErr_Clear();
        *result = PyObject_CallMethodOneArg(op->sock, G.s_recv_into, op->arg);
        if (*result)
            return 1;
        return -1;
    }
    gl_lease lease = sockop_lease(op);
    /* An empty buffer needs no wait, as in the socket module. */
    ssize_t got = 0;
    if (view.len)
        got = gl_call_recv(&lease, view.buf, (size_t)view.len, MSG_DONTWAIT);
    int err = errno;
    PyBuffer_Release(&view);
    if (got < 0)
        return sockop_call_failed(op, err);
    gl_count_received(op->loop, got);
    *result = PyLong_FromSsize_t(got);
    if (*result)
        return 1;
    return -1;
}

/* Returns 1 if the data may be sent in parts (a stream), 0 if not: a message is sent whole. */
static int
can_send_in_parts(PyObject *sock)
{
    PyObject *type = PyObject_GetAttrString(sock, "type");
    long number = -1;
    if (type)
        number = PyLong_AsLong(type);
    Py_XDECREF(type);
    if (PyErr_Occurred())
        return -1;
    return number == SOCK_STREAM;
}

/* Acquires the buffer of the data, in the first step, and sets the maximum of one call. */
static int
begin_send(sockop *op)
{
    if (PyObject_GetBuffer(op->arg, &op->view, PyBUF_SIMPLE) < 0)
        return -1;
    op->call_max = op->view.len;
    if (op->view.len <= GL_MAX_SEND)
        return 0;
    int parts = can_send_in_parts(op->sock);
    if (parts > 0)
        op->call_max = GL_MAX_SEND;
    if (parts < 0)
        return -1;
    return 0;
}

/* Attempts sock_sendall(): sends, after the deferred sends of the loop, until all is sent, the
 * kernel refuses bytes, or MAX_SEND_STEP is reached.  *result is None. */
static int
try_send(sockop *op, PyObject **result)
{
    if (op->view.obj == NULL && begin_send(op) < 0)
        return -1;
    gl_flush_deferred_sends(op->loop);
    Py_ssize_t before = op->size;
    do {
        gl_lease lease = sockop_lease(op);
        Py_ssize_t size = Py_MIN(op->view.len - op->size, op->call_max);
        ssize_t sent = gl_call_send(&lease, (char *)op->view.buf + op->size, (size_t)size,
                                    MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return sockop_call_failed(op, errno);
        gl_note_sent(op->loop, sent);
        op->size += sent;
    } while (op->size < op->view.len && op->size - before < MAX_SEND_STEP);
    op->refused = false;
    if (op->size < op->view.len)
        return 0; /* other tasks run first; the socket may still be writable */
    *result = Py_NewRef(Py_None);
    return 1;
}

GL_PRIVATE int
sockop_attempt(sockop *op, PyObject **result)
{
    if (op->failure != NULL) {
        gl_restore_exception(op->failure);
        op->failure = NULL;
        return -1;
    }
    if (op->result != NULL) {
        *result = op->result;
        op->result = NULL;
        return 1;
    }
    if (op->kind == OP_RECV)
        return try_recv(op, result);
    if (op->kind == OP_RECV_INTO)
        return try_recv_into(op, result);
    return try_send(op, result);
}

GL_PRIVATE void
sockop_attempt_early(PyObject *self)
{
    if (Py_TYPE(self) != G.sockop_type) {
        if (gl_drop_result(PyObject_CallNoArgs(self)) < 0)
            PyErr_WriteUnraisable(self);
        return;
    }
    sockop *op = (sockop *)self;
    if (op->running || op->state != OP_WAITING || op->result != NULL || op->failure != NULL)
        return;
    PyObject *result = NULL;
    op->running = true;
    int t = sockop_attempt(op, &result);
    op->running = false;
    if (t < 0)
        op->failure = gl_take_exception();
    else
        op->result = result;
}
