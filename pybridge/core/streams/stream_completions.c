/*
 * stream_completions.c: dispatches the completions of a stream to the files that handle them.
 */
#include "streams/stream.h"

/* gl_reg_ops.complete: handles one completion in the context of the transport.  If the context
 * can't be entered, the transport ends.  An exception of a handler goes to the loop's exception
 * handler; a MemoryError also ends the transport.  Returns 0, or -1 with an exit exception or an
 * exception of the exception handler. */
GL_PRIVATE int
stream_complete(gl_loop *loop, PyObject *owner, const gl_completion *c)
{
    gl_stream *s = (gl_stream *)owner;
    if (PyContext_Enter(s->context) < 0)
        return gl_transport_fatal_current(&s->base, READ_FAILED(s));
    int rc = 0;
    switch (c->kind) {
    case GL_CMP_DATA:
        rc = stream_handle_data(s, c);
        break;
    case GL_CMP_EOF:
    case GL_CMP_READ_ERROR:
        rc = stream_handle_read_end(s, c);
        break;
    case GL_CMP_READY:
        rc = stream_handle_readable(s, c);
        break;
    case GL_CMP_WROTE:
        rc = stream_handle_wrote(s);
        break;
    case GL_CMP_WRITE_ERROR:
        rc = stream_handle_write_error(s, c->res);
        break;
    default:
        break;
    }
    gl_context_exit_keep_error(s->context);
    if (rc >= 0)
        return 0;
    gl_transport_end_without_memory(&s->base);
    const char *message = s->kind ? "Exception in callback of a pipe transport"
                                  : "Exception in callback of a stream transport";
    return gl_call_exception_handler(loop, message, owner, s->protocol);
}
