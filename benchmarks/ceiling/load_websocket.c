/*
 * load_websocket.c: the request that opens a WebSocket, and the frames of its messages (RFC 6455).
 *
 * Every message is a whole binary frame.  No extension is asked for, so none is compressed.
 */
#include "load.h"

#include <stdlib.h>
#include <string.h>

enum { SHORTEST = 126, LONGEST = 65535, HEAD = 4, MASK = 4 };

const char websocket_request[] = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
                                 "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                 "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

char *websocket_frame(const char *payload, size_t size, int masked, size_t *length) {
    if (size < SHORTEST || size > LONGEST)
        refuse("SIZE of a WebSocket's message is 126 to 65535");
    char *frame = calloc(1, HEAD + MASK + size);
    if (frame == NULL)
        fail("calloc");
    frame[0] = (char)0x82; /* the last frame of a binary message */
    frame[1] = (char)(126 | (masked ? 0x80 : 0));
    frame[2] = (char)(size >> 8);
    frame[3] = (char)size;
    size_t head = HEAD + (masked ? MASK : 0);
    memcpy(frame + head, payload, size);
    *length = head + size;
    return frame;
}
