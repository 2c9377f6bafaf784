package main

/*
#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include "abi.h"

// The errno of EAI_SYSTEM is read in the same C call: between two calls Go may
// go on in another thread, and errno is a thread's own.
static int resolve_name(const char *host, const char *service, int flags, int family,
                        int socktype, int protocol, struct addrinfo **list, int *error)
{
    struct addrinfo hints;
    memset(&hints, 0, sizeof hints);
    hints.ai_flags = flags;
    hints.ai_family = family;
    hints.ai_socktype = socktype;
    hints.ai_protocol = protocol;
    *list = NULL;
    errno = 0;
    int code = getaddrinfo(host, service, &hints, list);
    *error = code == EAI_SYSTEM ? errno : 0;
    return code;
}
*/
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/goloop/goloop/netloop"
)

// maxResolving bounds the calls of getaddrinfo at one time: each holds a thread.
// Further requests wait on their goroutines, which cost a few KB.
const maxResolving = 64

var resolving = make(chan struct{}, maxResolving)

//export goloop_resolve
func goloop_resolve(reactor C.int32_t, request C.uint32_t, host, service *C.char,
	flags, family, socktype, protocol C.int32_t) C.int32_t {
	r := find(reactor)
	if r == nil {
		return badReactor
	}
	name, ok := copyString(host)
	if !ok {
		return -C.int32_t(syscall.ENOMEM)
	}
	port, ok := copyString(service)
	if !ok {
		C.free(unsafe.Pointer(name))
		return -C.int32_t(syscall.ENOMEM)
	}
	go func() {
		resolving <- struct{}{}
		var list *C.struct_addrinfo
		var errno C.int
		code := C.resolve_name(name, port, C.int(flags), C.int(family), C.int(socktype),
			C.int(protocol), &list, &errno)
		<-resolving
		C.free(unsafe.Pointer(name))
		C.free(unsafe.Pointer(port))
		a := netloop.Answer{Request: uint32(request), Code: int32(code), Errno: int64(errno),
			Data: unsafe.Pointer(list)}
		if !r.Deliver(a) {
			freeAnswer(a)
		}
	}()
	return 0
}

// copyString copies a C string into C memory, NULL to NULL.
func copyString(s *C.char) (*C.char, bool) {
	if s == nil {
		return nil, true
	}
	t := C.strdup(s)
	return t, t != nil
}

// freeAnswer frees an answer that C will not have.
func freeAnswer(a netloop.Answer) {
	if a.Data != nil {
		C.freeaddrinfo((*C.struct_addrinfo)(a.Data))
	}
}
