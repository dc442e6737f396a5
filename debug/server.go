package debug

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/internal/columns"
	"github.com/cupool/cupool/snapshot"
)

//go:embed page
var files embed.FS

// policy is the page's Content-Security-Policy: nothing but its own files.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// A server serves the page.
type server struct {
	sources func() []source // that are there now
	rings   rings
	handler http.Handler

	all  *crowd // of requests
	dear *crowd // of those that go through a snapshot
}

func newServer(list func() []entry) *server {
	s := &server{all: newCrowd(maxRequests, 0), dear: newCrowd(maxDear, maxInLine)}
	s.sources = func() (all []source) {
		taken := map[string]int{}
		for _, e := range list() {
			if !isClosed(e.caching) {
				all = append(all, s.live(e, taken)...)
			}
		}
		return all
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fail(w, &refusal{http.StatusForbidden, "changes are for pages of the same origin"})
	}))
	s.handler = protection.Handler(http.HandlerFunc(s.serve))
	return s
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	leave, err := s.all.enter(w, r)
	if err == nil {
		defer leave()
		err = cmp.Or(checkSize(w, r), checkHost(r))
	}
	if err != nil {
		fail(w, err)
		return
	}
	s.handler.ServeHTTP(w, r)
}

// checkSize refuses requests that have more than a URL: none needs it.
func checkSize(w http.ResponseWriter, r *http.Request) error {
	switch {
	case len(r.RequestURI) > maxURL:
		return refuse(http.StatusRequestURITooLong, "a URL has %d bytes at most", maxURL)
	case r.ContentLength != 0:
		w.Header().Set("Connection", "close") // else net/http waits for the body
		return refuse(http.StatusRequestEntityTooLarge, "a request has no body")
	}
	return nil
}

// A refusal is an error and its status.
type refusal struct {
	status int
	text   string
}

func (e *refusal) Error() string { return e.text }

func refuse(status int, format string, args ...any) error {
	return &refusal{status, fmt.Sprintf(format, args...)}
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusConflict
	var known *refusal
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.Is(err, cupool.ErrClosed):
		status = http.StatusNotFound // as a moment later, when it is found to be closed
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": err.Error()}) // the reader is gone
}

// A view answers a GET, a change a POST.
type (
	view   func(w http.ResponseWriter, r *http.Request, of source) error
	change func(l *live, q url.Values) (any, error)
)

// statistics are Stats with what these work out.
type statistics struct {
	cupool.Stats
	Fragmentation float64
}

var views = map[string]view{
	"stats": func(w http.ResponseWriter, r *http.Request, of source) error {
		st := of.stats()
		return reply(w, r, statistics{st, st.Fragmentation()})
	},
	"stats.txt": func(w http.ResponseWriter, _ *http.Request, of source) error {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, err := io.WriteString(w, of.stats().String())
		return err
	},
	"labels": func(w http.ResponseWriter, r *http.Request, of source) error {
		return reply(w, r, append([]cupool.LabelStats{}, of.stats().Labels...))
	},
	"settings": func(w http.ResponseWriter, r *http.Request, of source) error { return reply(w, r, of.settings()) },
	"snapshot": func(w http.ResponseWriter, r *http.Request, of source) error {
		p := of.snapshot()
		if err := fits(&p); err != nil {
			return err
		}
		attach(w, of, "json")
		w.Header().Set("Content-Type", "application/json")
		compressed(w, r, func(w io.Writer) { writeJSON(w, &p) })
		return nil
	},
	"snapshot.pickle": download("pickle", snapshot.WriteTorch),
	"blocks": func(w http.ResponseWriter, r *http.Request, of source) error {
		p := of.snapshot()
		return reply(w, r, columns.Of(&p))
	},
	"series": viewSeries,
	"events": viewEvents,
	"oom":    func(w http.ResponseWriter, r *http.Request, of source) error { return reply(w, r, of.failure(lastOOM)) },
	"heap":   download("pb.gz", snapshot.WriteProfile),
}

// dear are the views that go through a snapshot.
var dear = map[string]bool{"snapshot": true, "snapshot.pickle": true, "blocks": true, "heap": true}

var changes = map[string]change{
	"trim":    changeTrim,
	"history": changeHistory,
	"empty":   func(l *live, _ url.Values) (any, error) { return struct{}{}, l.EmptyCache() },
}

// serve answers a request that is allowed.
func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	if err := s.answer(w, r); err != nil {
		fail(w, err)
	}
}

func (s *server) answer(w http.ResponseWriter, r *http.Request) error {
	p := r.URL.Path
	name := path.Base("/" + p)
	switch {
	case p == "":
		return toSlash(w, r)
	case strings.HasSuffix(p, "/"):
		name = "index.html"
	}
	if f, ok := changes[name]; ok {
		return s.change(w, r, f)
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		return refuse(http.StatusMethodNotAllowed, "%s is read with GET", name)
	}
	if name == "pools" {
		return reply(w, r, s.pools())
	}
	if f, ok := views[name]; ok {
		if dear[name] || r.URL.Query().Has("moment") {
			leave, err := s.dear.enter(w, r)
			if err != nil {
				return err
			}
			defer leave()
		}
		of, err := s.source(r.URL.Query())
		if err != nil {
			return err
		}
		return f(w, r, of)
	}
	data, err := files.ReadFile("page/" + name)
	if err != nil {
		return refuse(http.StatusNotFound, "there is no %q here", name)
	}
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
	return nil
}

// toSlash redirects from a path without the slash that relative links need.
func toSlash(w http.ResponseWriter, r *http.Request) error {
	u, err := url.ParseRequestURI(r.RequestURI)
	if err != nil || path.Base(u.Path) == "." || path.Base(u.Path) == "/" {
		return refuse(http.StatusNotFound, "the page is below a path that ends with a slash")
	}
	w.Header().Set("Location", "./"+url.PathEscape(path.Base(u.Path))+"/")
	w.WriteHeader(http.StatusFound)
	return nil
}

// change does what a POST asks for.
func (s *server) change(w http.ResponseWriter, r *http.Request, f change) error {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		return refuse(http.StatusMethodNotAllowed, "changes take a POST")
	}
	of, err := s.source(r.URL.Query())
	if err != nil {
		return err
	}
	l, ok := of.(*live)
	if !ok {
		return refuse(http.StatusConflict, "a snapshot does not change")
	}
	result, err := f(l, r.URL.Query())
	if err != nil {
		return err
	}
	return reply(w, r, result)
}

// pools lists what can be looked at.
func (s *server) pools() []info {
	all := []info{}
	for _, of := range s.sources() {
		all = append(all, of.info())
	}
	return all
}

// source returns what a query asks for.
func (s *server) source(q url.Values) (source, error) {
	all := s.sources()
	if len(all) == 0 {
		return nil, refuse(http.StatusNotFound, "there is no open allocator: give one to debug.Handler or debug.Publish")
	}
	of := all[0]
	if id := q.Get("pool"); id != "" {
		of = nil
		for _, x := range all {
			if x.info().ID == id {
				of = x
			}
		}
		if of == nil {
			return nil, refuse(http.StatusNotFound, "there is no allocator or pool %q", id)
		}
	}
	switch moment := q.Get("moment"); moment {
	case "", "now":
		return of, nil
	case lastOOM, firstOOM:
		x := of.failure(moment)
		if x == nil || x.snapshot == nil {
			return nil, refuse(http.StatusNotFound, "there is no snapshot of an allocation that failed")
		}
		return newFrozen(of.info(), *x.snapshot), nil
	default:
		return nil, refuse(http.StatusBadRequest, "moment %q is neither oom nor first-oom", moment)
	}
}

// reply sends JSON, with gzip where the reader takes it, unless the reader has the
// same already.
func reply(w http.ResponseWriter, r *http.Request, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	hash := fnv.New64a()
	_, _ = hash.Write(data) // never fails
	h := w.Header()
	h.Set("Content-Type", "application/json")
	tag := fmt.Sprintf(`"%x"`, hash.Sum64())
	h.Set("ETag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if len(data) < 1<<12 {
		_, _ = w.Write(data) // the reader is gone
		return nil
	}
	compressed(w, r, func(w io.Writer) { _, _ = w.Write(data) })
	return nil
}

// compressed sends what write writes, with gzip where the reader takes it.
func compressed(w http.ResponseWriter, r *http.Request, write func(io.Writer)) {
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	if !takesGzip(r) {
		write(w)
		return
	}
	h.Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level exists
	write(z)
	_ = z.Close()
}

// takesGzip reports whether a reader lists gzip, and not with the weight 0, which
// refuses it.
func takesGzip(r *http.Request) bool {
	for coding := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, params, _ := strings.Cut(coding, ";")
		if strings.EqualFold(strings.TrimSpace(name), "gzip") {
			_, q, _ := strings.Cut(params, "=")
			weight, err := strconv.ParseFloat(strings.TrimSpace(q), 64)
			return err != nil || weight > 0
		}
	}
	return false
}

// attach names the file that a browser saves.
func attach(w http.ResponseWriter, of source, kind string) {
	name := strings.Map(func(r rune) rune {
		if r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, of.info().ID)
	w.Header().Set("Content-Disposition", fmt.Sprintf(`attachment; filename="cupool-%s.%s"`, name, kind))
}

// download returns a view that sends a file of what write writes. The file is made before, so
// that an error can be told.
func download(kind string, write func(io.Writer, ...snapshot.Snapshot) error) view {
	return func(w http.ResponseWriter, _ *http.Request, of source) error {
		var buf bytes.Buffer
		if err := write(&buf, of.whole()); err != nil {
			return err
		}
		attach(w, of, kind)
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(buf.Bytes()) // the reader is gone
		return nil
	}
}

func viewSeries(w http.ResponseWriter, r *http.Request, of source) error {
	after, err := integer(r.URL.Query(), "after", -1, -1)
	if err != nil {
		return err
	}
	return reply(w, r, of.series(time.Now()).after(after))
}

// maxEvents is how many events one answer has unless it is asked for fewer.
const maxEvents = 1000

func viewEvents(w http.ResponseWriter, r *http.Request, of source) error {
	q := r.URL.Query()
	after, err := integer(q, "after", 0, 0)
	if err != nil {
		return err
	}
	limit, err := integer(q, "limit", 1, maxEvents)
	if err != nil {
		return err
	}
	return reply(w, r, last(of.events(uint64(after)), limit))
}

// integer reads a whole number of a query, or returns what it is without.
func integer(q url.Values, name string, least, without int64) (int64, error) {
	text := q.Get(name)
	if text == "" {
		return without, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least {
		return 0, refuse(http.StatusBadRequest, "%s=%q is no whole number from %d on", name, text, least)
	}
	return n, nil
}

func changeTrim(l *live, q url.Values) (any, error) {
	keep, err := integer(q, "keep", 0, 0)
	if err != nil {
		return nil, err
	}
	released, err := l.Trim(keep)
	return map[string]int64{"released": released}, err
}

func changeHistory(l *live, q url.Values) (any, error) {
	if q.Get("on") == "0" {
		l.StopHistory()
		return struct{}{}, nil
	}
	if q.Get("on") != "1" {
		return nil, refuse(http.StatusBadRequest, "on=%q is neither 1 nor 0", q.Get("on"))
	}
	events, err := integer(q, "events", 1, 0)
	if err != nil {
		return nil, err
	}
	sample, err := integer(q, "sample", 1, 0)
	if err != nil {
		return nil, err
	}
	if events > maxHistory {
		return nil, refuse(http.StatusBadRequest, "events=%d is more than %d", events, maxHistory)
	}
	return struct{}{}, l.StartHistory(cupool.History{Events: int(events), SampleBytes: sample})
}

// maxHistory is how many events may be kept when a request asks for it: some 100 MB.
const maxHistory = 1 << 20
