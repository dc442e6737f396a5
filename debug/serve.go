package debug

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/gate"
)

// Serve serves h, a Handler or a mux that has one, at l until ctx is done, when it
// returns nil, or until l fails. It closes l. Strangers are bounded, as they are not by
// http.ListenAndServe: there are 1,024 connections at most, and one more ends the one
// that has been idle longest; a request has 10 seconds and a header of 12 KiB, an answer
// a minute. It fails with cupool.ErrInvalidHandle where one of its arguments is nil.
func Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	if ctx == nil || l == nil || h == nil {
		return fmt.Errorf("cupool: debug: Serve needs a context, a listener and a handler, and one is nil: %w", cupool.ErrInvalidHandle)
	}
	return gate.Run(ctx, l, h)
}
