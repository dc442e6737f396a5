package debug

import (
	"context"
	"net"
	"net/http"

	"github.com/cupool/cupool/internal/gate"
)

// Serve serves h, a Handler or a mux that has one, at l until ctx is done, when it
// returns nil, or until l fails. It closes l. Strangers are bounded, as they are not by
// http.ListenAndServe: there are 1,024 connections at most, and one more ends the one
// that has been idle longest; a request has 10 seconds and a header of 12 KiB, an answer
// a minute.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	return gate.Run(ctx, l, h)
}
