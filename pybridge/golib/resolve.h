/* resolve.h: names resolved on threads of C, see resolve.c. */
#ifndef GOLOOP_RESOLVE_H
#define GOLOOP_RESOLVE_H

#include "abi.h"

/* 0 or -ENOMEM. */
int32_t resolve_reactor_opened(int32_t reactor, gl_shared *shared);
/* Stands before the reactor's end, which `closed` follows with what this returned: the
 * shared block, or NULL for a reactor that is not there. */
gl_shared *resolve_reactor_closes(int32_t reactor);
void resolve_reactor_closed(gl_shared *shared);

/* gl_table.resolve */
int32_t resolve_name(int32_t reactor, uint32_t request, const char *host, const char *service,
                     int32_t flags, int32_t family, int32_t socktype, int32_t protocol);

/* gl_table.forking */
int32_t resolve_forking(int32_t begins);

#endif /* GOLOOP_RESOLVE_H */
