/*
 * load_tls.c: the load generator's TLS, by the same OpenSSL that Python uses.
 *
 * The client does not verify certificates, because the server is known.
 *
 * A client that encrypts and decrypts costs as much as the server that it measures.
 * So only each connection's first answer is decrypted.  From then on a session is
 * *skimming*: it reads the encrypted records, and counts their bytes by the headers.
 * Messages are encrypted through a custom BIO into the session's buffer; OpenSSL's
 * memory BIO would clear its buffer at every use.
 *
 * Without WITH_TLS (if OpenSSL's headers are missing) the generator has no TLS modes.
 */
#include "load.h"

#ifdef WITH_TLS
#include <errno.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* RFC 8446, 5.2: a record of TLS 1.3 has a header of 5 bytes (type, version, length),
 * and its length counts the type that is hidden in it and GCM's tag of 16 bytes. */
enum { HEADER = 5, HIDDEN = 17, APPLICATION_DATA = 23, ROOM = 256 * 1024 };

struct tls_session {
    SSL *ssl;
    int fd, skimming;
    char *out;
    size_t begin, end, room; /* out[begin:end] is unsent */
    /* Skimming: the current record. */
    unsigned char header[HEADER];
    size_t header_length, body_length, body_left;
};

static SSL_CTX *context;
static BIO_METHOD *collector;

/* Exits with a sentence and the text of OpenSSL's error. */
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

/* The BIO's write function: appends bytes to the session's unsent bytes. */
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

/* The BIO's control function: a flush succeeds, every other command is not supported. */
static long control(BIO *bio, int command, long number, void *pointer) {
    (void)bio, (void)number, (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

/* Makes the context of all sessions (TLS 1.3) and the class of their output BIO. */
static void prepare(void) {
    context = SSL_CTX_new(TLS_client_method());
    collector = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "collector");
    if (context == NULL || collector == NULL)
        tls_fail("SSL_CTX_new");
    BIO_meth_set_write(collector, collect);
    BIO_meth_set_ctrl(collector, control);
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1)
        tls_fail("TLS 1.3");
}

tls_session *tls_new(int fd) {
    if (context == NULL)
        prepare();
    tls_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        fail("calloc");
    session->ssl = SSL_new(context);
    session->fd = fd;
    BIO *in = BIO_new_socket(fd, BIO_NOCLOSE), *out = BIO_new(collector);
    if (session->ssl == NULL || in == NULL || out == NULL)
        tls_fail("SSL_new");
    BIO_set_data(out, session);
    BIO_set_init(out, 1);
    SSL_set_bio(session->ssl, in, out);
    SSL_set_connect_state(session->ssl);
    return session;
}

/* Returns true if a failed call needs more bytes from the server. */
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

size_t tls_read(tls_session *session, char *into, size_t room) {
    int got = SSL_read(session->ssl, into, (int)room);
    if (got > 0)
        return (size_t)got;
    if (!waits(session, got))
        tls_fail("the server closed a connection");
    return 0;
}

/* Counts the bytes of the records that end in the received bytes.  An encrypted alert looks
 * like two bytes of data, but the end of the connection follows it. */
static size_t skim(tls_session *s, const unsigned char *bytes, size_t length) {
    size_t plain = 0;
    while (length > 0) {
        if (s->body_left == 0) {
            s->header[s->header_length++] = *bytes++;
            length--;
            if (s->header_length < HEADER)
                continue;
            s->header_length = 0;
            s->body_left = s->body_length = (size_t)s->header[3] << 8 | s->header[4];
            if (s->header[0] != APPLICATION_DATA || s->body_length < HIDDEN)
                refuse("the server sent a record that is not application data");
            continue;
        }
        size_t step = length < s->body_left ? length : s->body_left;
        bytes += step;
        length -= step;
        s->body_left -= step;
        if (s->body_left == 0)
            plain += s->body_length - HIDDEN;
    }
    return plain;
}

size_t tls_skim(tls_session *session) {
    static unsigned char records[ROOM];
    if (!session->skimming && SSL_has_pending(session->ssl))
        refuse("an answer is longer than its question");
    session->skimming = 1;
    ssize_t got = recv(session->fd, records, sizeof records, 0);
    if (got == 0)
        refuse("the server closed a connection");
    if (got < 0 && errno != EAGAIN && errno != EINTR)
        fail("recv");
    return got < 0 ? 0 : skim(session, records, (size_t)got);
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

int tls_handshake(tls_session *session) { return session != NULL; }

void tls_write(tls_session *session, const char *data, size_t length) {
    (void)session, (void)data, (void)length;
}

size_t tls_read(tls_session *session, char *into, size_t room) {
    (void)session, (void)into, (void)room;
    return 0;
}

size_t tls_skim(tls_session *session) { return session != NULL; }

size_t tls_unsent(const tls_session *session, const char **bytes) {
    (void)session, (void)bytes;
    return 0;
}

void tls_sent(tls_session *session, size_t length) { (void)session, (void)length; }

#endif
