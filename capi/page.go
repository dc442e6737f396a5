package main

// #include "internal.h"
import "C"

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/cupool/cupool/debug"
)

// page is the live page that is being served.
var page struct {
	sync.Mutex
	stop context.CancelFunc // nil: none is
	over chan struct{}      // closed when it ended
}

//export cupoolGoServe
func cupoolGoServe(t *C.thread, address, url *C.char, size C.size_t) (st C.cupool_status) {
	defer caught(t, &st)
	page.Lock()
	defer page.Unlock()
	if page.stop != nil {
		return done(t, faultf(C.CUPOOL_ERROR_EXISTS, "the page is served already"))
	}
	if *address == 0 { // which net.Listen takes for all addresses of the computer
		return done(t, faultf(C.CUPOOL_ERROR_INVALID, "the address is empty"))
	}
	l, err := net.Listen("tcp", C.GoString(address))
	if err != nil {
		return done(t, err)
	}
	mux := http.NewServeMux()
	mux.Handle("/debug/cupool/", debug.Handler())
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	page.stop, page.over = stop, over
	go func() {
		defer close(over)
		_ = debug.Serve(ctx, l, mux) // when the listener fails, the page is gone
	}()
	copyText(url, size, "http://"+l.Addr().String()+"/debug/cupool/")
	return C.CUPOOL_OK
}

//export cupoolGoServeStop
func cupoolGoServeStop(t *C.thread) (st C.cupool_status) {
	defer caught(t, &st)
	page.Lock()
	defer page.Unlock()
	if page.stop == nil {
		return done(t, faultf(C.CUPOOL_ERROR_NOT_FOUND, "no page is served"))
	}
	page.stop()
	<-page.over
	page.stop = nil
	return C.CUPOOL_OK
}
