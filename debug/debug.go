// Package debug serves a page that shows what an allocator holds, as net/http/pprof
// does for Go's heap: a map of every segment and block, memory over time, who holds
// most, how fragmented it is, what happened last, and the moments of the first and the
// last allocation that failed. Scripts read the same as JSON.
//
// A program that has one or several allocators and serves http.DefaultServeMux
// imports the package and names them:
//
//	listener, err := net.Listen("tcp", "localhost:6060")
//	go debug.Serve(ctx, listener, http.DefaultServeMux)
//	defer debug.Publish("training", pool)()
//
// and the page is at http://localhost:6060/debug/cupool/. A program with a mux of
// its own takes the Handler, below any path that ends with a slash:
//
//	mux.Handle("/debug/cupool/", debug.Handler(pool))
//
// Importing the package takes this path on http.DefaultServeMux. http.Handle with the
// same path panics.
//
// # Who may see it
//
// Whoever reaches the page sees names of functions, files and labels, and settings of the
// allocator, of the environment no others, and may trim
// the allocator and record its history. Serve it on a private address, as pprof.
// Serve bounds how many connections there are, what they send and how long they take;
// http.ListenAndServe does not. Under any server a Handler has 256 requests under way at
// most, of a URL of 4 KiB and nothing else, and 8 of those that go through a snapshot; 128
// wait for these. An answer has a minute, and 10 seconds where others wait. What changes anything takes a POST, and pages of other origins are refused with
// status 403 (http.CrossOriginProtection). So are requests to the host name of a
// stranger, which a browser would take for an origin of its own although the name leads
// here (DNS rebinding): what is answered is an address, localhost, a name without a
// dot, the computer's own name, and what AllowHosts or the variable CUPOOL_DEBUG_HOSTS
// say (names with commas). Requests that come to an address which other computers
// reach may read under any name: whoever runs the program chose to listen there. The page
// loads nothing from elsewhere, and its Content-Security-Policy allows nothing else.
//
// # What is there
//
// The last element of a path says what is wanted. ?pool=ID chooses one of the
// allocators and private pools that are listed under pools; without it, it is the
// first. ?moment=oom takes the moment of the last allocation that failed, in place
// of the present one, and ?moment=first-oom that of the first, which is always kept. Sizes are in bytes, and times in milliseconds since 1970.
//
//	.../                the page
//	.../pools           the allocators and their private pools: ID, name, device, abilities
//	.../stats           cupool.Stats as JSON, with its Fragmentation
//	.../stats.txt       the same as a table for people (Stats.String)
//	.../labels          []cupool.LabelStats as JSON
//	.../settings        []cupool.Setting as JSON: what is in force, and where it came from; none of a snapshot
//	.../snapshot        snapshot.Snapshot as JSON; 409 where its labels and stacks have more than 256 MiB
//	.../snapshot.pickle the same for PyTorch's viewer (snapshot.WriteTorch)
//	.../blocks          the snapshot in columns, as the page draws it; with an ETag
//	.../series          memory over time, in columns; ?after=N: what came after sample N
//	.../events          the last events; ?after=N: those after number N; ?limit=N: at most so many; fewer
//	                    where more would have more than 4 MiB
//	.../oom             what the last failed allocation said about itself, and the first
//	.../heap            for go tool pprof: live memory by Go stack (snapshot.WriteProfile)
//	POST .../trim       Trim; ?keep=N keeps so many bytes reserved
//	POST .../empty      EmptyCache
//	POST .../history    ?on=1 starts to record events and stacks, with ?events=N of them and
//	                    ?sample=N bytes between samples; ?on=0 ends it
//
// Errors are JSON objects with the one field error. The status is 400 for wrong
// parameters, 403 for foreign origins and hosts, 404 for what does not exist and for
// allocators that were closed, 405 for a wrong method, 409 where the allocator refused, 413
// and 414 for what is too large, and 503 with Retry-After where too many requests are under way.
//
// # What it costs
//
// Nothing runs while nobody looks. An open page takes statistics about once a second
// and a snapshot about every two seconds, less often when these take long, and both
// stop the allocator's slow paths meanwhile (Pool.Stats, Pool.Snapshot). Samples
// of memory over time are taken when somebody asks, at most four a second, and the
// last 1,200 are kept.
package debug

import (
	"net/http"
	"slices"
	"sync"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/snapshot"
)

func init() { http.Handle("/debug/cupool/", Handler()) }

// Handler serves the page of the allocators and of their private pools; without
// arguments, of those that are published. It is safe from several goroutines and
// works below any path that ends with a slash. Allocators that are closed vanish
// from it.
func Handler(allocators ...*cupool.Pool) http.Handler {
	if len(allocators) == 0 {
		return newServer(published.list)
	}
	var all []entry
	for _, c := range allocators {
		all = append(all, entry{c.Name(), c})
	}
	return newServer(func() []entry { return all })
}

// SnapshotHandler serves the page of snapshots that were taken before, as
// snapshot.Read returns them, under a name such as that of a file. Memory over time is
// worked out from their events.
func SnapshotHandler(name string, pools ...snapshot.Snapshot) http.Handler {
	return newFrozenServer(name, pools)
}

// Publish shows an allocator and its private pools on the page that importing the
// package serves at /debug/cupool/, and by a Handler without arguments, until the
// returned function is called or the allocator is closed. Two of the same name are
// told apart by number. Safe from several goroutines.
func Publish(name string, c *cupool.Pool) (remove func()) {
	return published.add(entry{name, c})
}

// An entry is an allocator and its name on the page, which may be empty.
type entry struct {
	name    string
	caching *cupool.Pool
}

// A registry is a list of allocators.
type registry struct {
	mu  sync.Mutex
	all []*entry
}

var published registry

func (r *registry) add(e entry) (remove func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(func(e *entry) bool { return isClosed(e.caching) })
	r.all = append(r.all, &e)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.drop(func(old *entry) bool { return old == &e })
	}
}

func (r *registry) drop(gone func(*entry) bool) { r.all = slices.DeleteFunc(r.all, gone) }

// list returns the allocators that are open.
func (r *registry) list() (all []entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop(func(e *entry) bool { return isClosed(e.caching) })
	for _, e := range r.all {
		all = append(all, *e)
	}
	return all
}
