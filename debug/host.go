package debug

import (
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// AllowHosts has the package's pages answer requests to these host names, without
// ports, beside those that they answer anyway. A program behind a proxy, or that is
// reached by a full name such as gpu7.lab.example, names them, or who starts it does so in
// the variable CUPOOL_DEBUG_HOSTS of the environment, with commas in between. Names are
// compared without regard to case and to a dot at their end. Safe from several goroutines.
func AllowHosts(names ...string) {
	allowed.mu.Lock()
	defer allowed.mu.Unlock()
	for _, name := range names {
		allowed.names = append(allowed.names, strings.ToLower(name))
	}
}

// hosts are names under which the pages are served.
type hosts struct {
	mu    sync.Mutex
	names []string
}

var allowed = hosts{names: append(ownName(), namesIn(os.Getenv("CUPOOL_DEBUG_HOSTS"))...)}

// namesIn returns the names of a list with commas.
func namesIn(list string) []string {
	return strings.FieldsFunc(strings.ToLower(list), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}

// ownName returns the name that the computer has for itself.
func ownName() []string {
	name, err := os.Hostname()
	if err != nil {
		return nil
	}
	return []string{strings.ToLower(name)}
}

func (h *hosts) have(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.names, func(n string) bool { return strings.TrimSuffix(n, ".") == name })
}

// checkHost refuses a request to a name that a stranger may have made lead here: a page
// of that name would be of the same origin, and read what is served (DNS rebinding).
// Addresses are nobody's names, and nobody can register one without a dot. Where the program
// listens to other computers, which whoever runs it has chosen, all may read under any name.
func checkHost(r *http.Request) error {
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && fromOutside(r) {
		return nil
	}
	name := r.Host
	if host, _, err := net.SplitHostPort(name); err == nil {
		name = host
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	switch {
	case !strings.Contains(name, "."), strings.HasSuffix(name, ".localhost"),
		net.ParseIP(strings.Trim(name, "[]")) != nil, allowed.have(name):
		return nil
	}
	return refuse(http.StatusForbidden, "this page is not served under the name %q: take the computer's address, or name it in CUPOOL_DEBUG_HOSTS or by debug.AllowHosts(%[1]q)", name)
}

// fromOutside reports whether a request came to an address that other computers reach.
func fromOutside(r *http.Request) bool {
	to, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && !to.IP.IsLoopback()
}
