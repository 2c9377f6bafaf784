/*
 * load_tls.c: the load generator's TLS, by the same OpenSSL that Python uses.
 *
 * The client verifies no certificate: it measures, and the server is its own.  It
 * resumes no session either, so that every handshake is a whole one.
 *
 * Received records are read ahead, so that a message of many records costs few
 * system calls; what is to be sent goes through a BIO of our own into the
 * session's buffer, which OpenSSL's memory BIO would wipe at every use.
 *
 * Built without WITH_TLS, where there are no headers of OpenSSL, the generator has
 * no mode that leads here.
 */
#include "load.h"

#ifdef WITH_TLS
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

enum { READ_AHEAD = 256 * 1024 };

struct tls_session {
    SSL *ssl;
    char *out;
    size_t begin, end, room; /* out[begin:end] is unsent */
};

static SSL_CTX *context;
static BIO_METHOD *collector;

static void tls_fail(const char *what) {
    static char sentence[256];
    unsigned long code = ERR_peek_error();
    strcpy(sentence, what);
    if (code != 0) {
        strcat(sentence, ": ");
        ERR_error_string_n(code, sentence + strlen(sentence), 200);
    }
    refuse(sentence);
}

static int collect(BIO *bio, const char *data, int length) {
    tls_session *session = BIO_get_data(bio);
    size_t due = session->end + (size_t)length;
    if (due > session->room) {
        session->room = due * 2;
        session->out = realloc(session->out, session->room);
        if (session->out == NULL)
            fail("realloc");
    }
    memcpy(session->out + session->end, data, (size_t)length);
    session->end = due;
    return length;
}

static long control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static void prepare(void) {
    context = SSL_CTX_new(TLS_client_method());
    collector = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "collector");
    if (context == NULL || collector == NULL)
        tls_fail("SSL_CTX_new");
    BIO_meth_set_write(collector, collect);
    BIO_meth_set_ctrl(collector, control);
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD);
}

tls_session *tls_new(int fd) {
    if (context == NULL)
        prepare();
    tls_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        fail("calloc");
    session->ssl = SSL_new(context);
    BIO *in = BIO_new_socket(fd, BIO_NOCLOSE), *out = BIO_new(collector);
    if (session->ssl == NULL || in == NULL || out == NULL)
        tls_fail("SSL_new");
    BIO_set_data(out, session);
    BIO_set_init(out, 1);
    SSL_set_bio(session->ssl, in, out);
    SSL_set_connect_state(session->ssl);
    return session;
}

void tls_free(tls_session *session) {
    SSL_free(session->ssl); /* and its BIOs */
    free(session->out);
    free(session);
}

/* Tells whether a call that did not succeed waits for the server. */
static int waits(tls_session *session, int result) {
    return SSL_get_error(session->ssl, result) == SSL_ERROR_WANT_READ;
}

int tls_handshake(tls_session *session) {
    int result = SSL_do_handshake(session->ssl);
    if (result != 1 && !waits(session, result))
        tls_fail("TLS handshake");
    return result == 1;
}

void tls_write(tls_session *session, const char *data, size_t length) {
    if (SSL_write(session->ssl, data, (int)length) != (int)length)
        tls_fail("SSL_write");
}

void tls_close(tls_session *session) {
    if (SSL_shutdown(session->ssl) < 0)
        tls_fail("SSL_shutdown");
}

size_t tls_read(tls_session *session, char *into, size_t room) {
    int got = SSL_read(session->ssl, into, (int)room);
    if (got > 0)
        return (size_t)got;
    if (!waits(session, got))
        tls_fail("the server closed a connection");
    return 0;
}

size_t tls_unsent(const tls_session *session, const char **bytes) {
    *bytes = session->out + session->begin;
    return session->end - session->begin;
}

void tls_sent(tls_session *session, size_t length) {
    session->begin += length;
    if (session->begin == session->end)
        session->begin = session->end = 0;
}

#else

tls_session *tls_new(int fd) {
    (void)fd;
    refuse("built without OpenSSL");
}

void tls_free(tls_session *session) { (void)session; }

int tls_handshake(tls_session *session) { return session != NULL; }

void tls_write(tls_session *session, const char *data, size_t length) {
    (void)session, (void)data, (void)length;
}

void tls_close(tls_session *session) { (void)session; }

size_t tls_read(tls_session *session, char *into, size_t room) {
    (void)session, (void)into, (void)room;
    return 0;
}

size_t tls_unsent(const tls_session *session, const char **bytes) {
    (void)session, (void)bytes;
    return 0;
}

void tls_sent(tls_session *session, size_t length) { (void)session, (void)length; }

#endif
