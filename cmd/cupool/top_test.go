package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTopErrors(t *testing.T) {
	none := httptest.NewServer(http.NotFoundHandler()) // not http.DefaultServeMux, where package debug is
	defer none.Close()
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "cupool top: it takes one URL, such as localhost:6060"},
		{[]string{"localhost:6060", "localhost:6061"}, 2, "it takes one URL"},
		{[]string{"-every", "1ms", "localhost:6060"}, 2, "-every 1ms is less than 100ms"},
		{[]string{none.URL}, 1, "/debug/cupool/: there is no debug page of cupool: 404 Not Found"},
	} {
		status, out, errs := tool(t, append([]string{"top"}, c.args...)...)
		require.Equal(t, c.status, status, errs)
		require.Contains(t, errs, c.want)
		require.Empty(t, out)
	}
}
