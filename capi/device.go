package main

// #define _GNU_SOURCE
// #include <stdlib.h>
// #include <unistd.h>
// #include "internal.h"
import "C"

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cupool/cupool"
	"github.com/cupool/cupool/cuda"
	"github.com/cupool/cupool/debug"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/cudadrv"
	"github.com/cupool/cupool/internal/poolaccess"
)

// gpu is a device whose pool is open.
type gpu struct {
	ordinal  int
	driver   *driver
	root     *cupool.Pool
	access   poolaccess.Access
	memory   int64    // the device's memory in bytes
	ownOrder bool     // nobody has said an idle_order
	streams  sync.Map // handle to *cupool.Stream; the pool knows whether that is open
	peers    peers

	mu      sync.RWMutex // guards what follows
	pools   map[poolID]*pool
	retired []*pool // whose last block is not freed yet
	named   map[string]poolID
	names   uint64
	books   books
	limit   int64   // bytes; 0: none
	part    float64 // of the device's memory, that bounds it; 0: none

	syncs     atomic.Int64 // calls that wait for all streams
	callbacks atomic.Pointer[C.cupool_callbacks]
	labeled   sync.Map // labelKey to cupool.Allocator

	configuring sync.Mutex // held while settings change: each change begins with what the last one left
	settings    bound      // of the settings; guarded by configuring, as what follows
	changed     bound      // of cupool_set_limit or cupool_set_fraction
}

// bound is what all pools of a device may reserve: bytes, a part of the device's memory, or the smaller of both. 0: no
// bound.
type bound struct {
	bytes int64
	part  float64
}

// nothing is a bound in bytes that no block fits.
const nothing = 1

// and returns the smaller of each of two bounds.
func (b bound) and(o bound) bound {
	if b.bytes == 0 || o.bytes > 0 && o.bytes < b.bytes {
		b.bytes = o.bytes
	}
	if b.part == 0 || o.part > 0 && o.part < b.part {
		b.part = o.part
	}
	return b
}

// of returns the bound in bytes on a device with so many; 0: none.
func (b bound) of(memory int64) int64 {
	if b.part > 0 {
		b = b.and(bound{bytes: max(1, int64(b.part*float64(memory)))})
	}
	return b.bytes
}

var (
	opening sync.Mutex
	gpus    [C.MAX_DEVICES]atomic.Pointer[gpu]
)

// settingsOf are what cupool_config says.
type settingsOf struct {
	text          string
	limit         int64
	fraction      float64
	notShareable  bool
	noEnvironment bool
}

// of returns a device, whose pool it opens with the settings of the environment where it
// is not open.
func of(ordinal C.int) (*gpu, error) {
	if uint(ordinal) < uint(len(gpus)) {
		if g := gpus[ordinal].Load(); g != nil {
			return g, nil
		}
	}
	return open(int(ordinal), settingsOf{}, false)
}

// open opens a device's pool. It fails with CUPOOL_ERROR_EXISTS where that is open, if it has to
// be new.
func open(ordinal int, set settingsOf, isNew bool) (*gpu, error) {
	if ordinal < 0 || ordinal >= len(gpus) {
		return nil, faultf(C.CUPOOL_ERROR_INVALID, "there is no device %d: it is between 0 and %d", ordinal, len(gpus)-1)
	}
	opening.Lock()
	defer opening.Unlock()
	if g := gpus[ordinal].Load(); g != nil {
		if isNew {
			return nil, faultf(C.CUPOOL_ERROR_EXISTS, "the pool of device %d is open, with settings that stay", ordinal)
		}
		return g, nil
	}
	cfg, ownOrder, err := set.config()
	if err != nil {
		return nil, err
	}
	C.cupool_find_exchange(library())
	defer relaxed()()
	inner, err := openCUDA(ordinal, !set.notShareable)
	if err != nil {
		return nil, noDevice(err)
	}
	g := &gpu{ordinal: ordinal, ownOrder: ownOrder, pools: map[poolID]*pool{}, named: map[string]poolID{}}
	g.peers.blocks, g.peers.agents = map[cupool.Ptr]*peerBlock{}, map[*gpu]*cupool.Stream{}
	g.driver = &driver{Driver: inner, of: g}
	if err := g.begin(cfg); err != nil {
		return nil, errors.Join(err, inner.Close())
	}
	debug.Publish(fmt.Sprintf("cuda:%d", ordinal), g.root)
	gpus[ordinal].Store(g)
	return g, nil
}

// begin makes the pool.
func (g *gpu) begin(cfg cupool.Config) (err error) {
	if _, g.memory, err = g.driver.MemInfo(); err != nil {
		return err
	}
	set := bound{cfg.Limit, cfg.Fraction}
	if n := set.of(g.memory); n > 0 && cfg.InitialSize > n { // the limit comes after what New reserves
		return &cupool.ConfigError{
			Field: "initial_size", Value: bytesize.Exact(cfg.InitialSize), Reason: "must not be larger than the limit of " + bytesize.Format(n),
		}
	}
	cfg.Limit, cfg.Fraction, cfg.NoEnvironment = 0, 0, true // which was read; the program may change the limits
	cfg.Driver, cfg.BeforeGrow, cfg.OnOutOfMemory = g.driver, g.beforeGrow, g.onOOM
	if g.root, err = cupool.New(cfg); err != nil {
		return err
	}
	g.access = poolaccess.Of(g.root)
	if err = g.changeBounds(set, bound{}); err != nil {
		return errors.Join(err, g.root.Close())
	}
	return nil
}

// bound bounds what all pools reserve, beside the settings.
func (g *gpu) bound(b bound) error {
	g.configuring.Lock()
	defer g.configuring.Unlock()
	return g.changeBounds(g.settings, b)
}

// changeBounds changes both bounds, of which the smaller one holds. gpu.configuring is held, or nobody has the gpu yet.
func (g *gpu) changeBounds(settings, changed bound) error {
	if changed.bytes < 0 {
		return faultf(C.CUPOOL_ERROR_INVALID, "the limit is larger than any device")
	}
	b := settings.and(changed)
	limit := b.of(g.memory)
	g.settings, g.changed = settings, changed
	g.mu.Lock()
	defer g.mu.Unlock()
	g.limit, g.part = limit, b.part
	g.access.SetLimit(limit, g.memory, b.bytes, b.part)
	return nil
}

// fraction returns the part of the device's memory that may be reserved.
func (g *gpu) fraction() float64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case g.part > 0:
		return g.part
	case g.limit == 0:
		return 1
	case g.limit == nothing:
		return 0
	}
	return min(1, float64(g.limit)/float64(g.memory))
}

// openCUDA opens a device, with memory for other processes where it can have that.
func openCUDA(ordinal int, shareable bool) (cuda.Driver, error) {
	if shareable {
		d, err := cuda.Open(ordinal, cuda.Shareable())
		if err == nil || !errors.Is(err, cupool.ErrNotSupported) {
			return d, err
		}
	}
	return cuda.Open(ordinal)
}

var driverLibrary *C.char

// library is the name of the driver's library.
func library() *C.char {
	if driverLibrary == nil {
		driverLibrary = C.CString(cmp.Or(os.Getenv("CUPOOL_LIBCUDA"), "libcuda.so.1"))
	}
	return driverLibrary
}

// config returns the configuration of settings and of the environment, and whether neither
// says an idle_order.
func (set settingsOf) config() (cfg cupool.Config, ownOrder bool, err error) {
	switch {
	case set.limit < 0:
		return cfg, false, faultf(C.CUPOOL_ERROR_CONFIG, "the limit is larger than any device")
	case !(set.fraction >= 0 && set.fraction <= 1):
		return cfg, false, faultf(C.CUPOOL_ERROR_CONFIG, "the fraction %v is not between 0 and 1", set.fraction)
	}
	if cfg, err = cupool.ParseAllocConf(set.text); err != nil {
		return cfg, false, err
	}
	var list []cupool.Setting
	if !set.noEnvironment {
		readEnvironment()
		if cfg, list, err = cupool.ConfigFromEnv(cfg); err != nil {
			return cfg, false, err
		}
	}
	cfg.Limit, cfg.Fraction = cmp.Or(set.limit, cfg.Limit), cmp.Or(set.fraction, cfg.Fraction)
	ownOrder = !strings.Contains(set.text, "idle_order") &&
		!slices.ContainsFunc(list, func(s cupool.Setting) bool { return s.Key == "idle_order" && s.Source != cupool.SourceDefault })
	if ownOrder { // programs in C use memory on streams that they do not record
		cfg.IdleOrder = cupool.DeviceOrder
	}
	return cfg, ownOrder, nil
}

// readEnvironment gives Go the variables of cupool that C has. Go's are those of the begin of the process, and the program
// may have set others. A thread that changes C's meanwhile may move it, and glibc's lock for that is
// not to be had: cupool.h says so.
func readEnvironment() {
	now := map[string]string{}
	for at := C.environ; at != nil && *at != nil; at = (**C.char)(unsafe.Add(unsafe.Pointer(at), unsafe.Sizeof(*at))) {
		if name, value, _ := strings.Cut(C.GoString(*at), "="); strings.HasPrefix(name, "CUPOOL_") {
			now[name] = value
			if before, ok := os.LookupEnv(name); !ok || before != value {
				os.Setenv(name, value)
			}
		}
	}
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if _, ok := now[name]; !ok && strings.HasPrefix(name, "CUPOOL_") {
			os.Unsetenv(name)
		}
	}
}

// onStream calls f with the pool's side of a stream. Where that was forgotten meanwhile, the handle is
// another stream's, and f is called again.
func (g *gpu) onStream(handle cupool.StreamHandle, f func(s *cupool.Stream) error) error {
	s, err := g.stream(handle)
	for last := (*cupool.Stream)(nil); err == nil; s, err = g.adopt(handle) {
		if err = f(s); s == last || !errors.Is(err, cupool.ErrClosed) { // s is open, so something else is closed
			return err
		}
		last = s
	}
	return err
}

// allocating is onStream for what may take so many bytes of the device, which are told of as the stream's.
func (g *gpu) allocating(t *C.thread, size C.size_t, stream C.uintptr_t, f func(s *cupool.Stream) error) error {
	if err := possible(size); err != nil {
		return err
	}
	g.freeLate()
	before := t.stream
	t.stream = stream
	defer func() { t.stream = before }()
	return g.onStream(cupool.StreamHandle(stream), f)
}

// possible fails for sizes that Go has no numbers for.
func possible(sizes ...C.size_t) error {
	for _, n := range sizes {
		if n > math.MaxInt64 {
			return faultf(C.CUPOOL_ERROR_INVALID, "%d bytes are more than any device has", uint64(n))
		}
	}
	return nil
}

var errPerThread = faultf(C.CUPOOL_ERROR_FOREIGN_STREAM, "CU_STREAM_PER_THREAD is another stream for each thread: give the pool a stream that was made")

// stream returns the pool's side of a stream, nil for the default one. It may have been forgotten meanwhile, which
// shows in its use.
func (g *gpu) stream(handle cupool.StreamHandle) (*cupool.Stream, error) {
	if handle <= cuda.LegacyStream {
		return nil, nil
	}
	if s, ok := g.streams.Load(handle); ok {
		return s.(*cupool.Stream), nil
	}
	return g.adopt(handle)
}

// adopt is stream that asks the pool.
func (g *gpu) adopt(handle cupool.StreamHandle) (*cupool.Stream, error) {
	if handle == cuda.PerThreadStream {
		return nil, errPerThread
	}
	s, err := g.root.AdoptStream(handle)
	if err == nil {
		g.streams.Store(handle, s)
	}
	return s, err
}

// forget closes a stream. From then on the handle is another stream's.
func (g *gpu) forget(handle cupool.StreamHandle) error {
	if handle <= cuda.LegacyStream {
		return nil
	}
	err := g.access.ForgetStream(handle)
	g.streams.Delete(handle)
	each(func(other *gpu) { err = errors.Join(err, other.forgetPeer(peerStream{g, handle})) })
	C.cupool_forget_hints()
	return err
}

//export cupoolGoOpen
func cupoolGoOpen(t *C.thread, ordinal C.int, c *C.cupool_config) (st C.cupool_status) {
	defer caught(t, &st)
	set := settingsOf{limit: int64(c.limit), fraction: float64(c.fraction), notShareable: c.not_shareable != 0, noEnvironment: c.no_environment != 0}
	if c.settings != nil {
		set.text = withoutBlanks(c.settings)
	}
	_, err := open(int(ordinal), set, true)
	return done(t, err)
}

//export cupoolGoIsOpen
func cupoolGoIsOpen(ordinal C.int) C.int {
	if uint(ordinal) < uint(len(gpus)) && gpus[ordinal].Load() != nil {
		return 1
	}
	return 0
}

//export cupoolGoDeviceCount
func cupoolGoDeviceCount(t *C.thread, count *C.int) (st C.cupool_status) {
	defer caught(t, &st)
	if err := cudadrv.Load(); err != nil {
		return done(t, faultf(C.CUPOOL_ERROR_NO_DEVICE, "there is no NVIDIA driver here: %v", err))
	}
	r := cudadrv.Init()
	n := 0
	if r == cudadrv.Success {
		n, r = cudadrv.DeviceCount()
	}
	if r != cudadrv.Success {
		return done(t, faultf(C.CUPOOL_ERROR_NO_DEVICE, "the driver counts no devices: CUDA error %d", int(r)))
	}
	*count = C.int(n)
	return C.CUPOOL_OK
}

//export cupoolGoSettings
func cupoolGoSettings(t *C.thread, ordinal C.int, text *C.char, size C.size_t, length *C.size_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		var sb strings.Builder
		for _, s := range g.root.Settings() {
			if s.Key == "idle_order" && g.ownOrder {
				s.Source = cupool.SourceDefault
			}
			fmt.Fprintf(&sb, "%s:%s (%s)\n", s.Key, s.Value, s.Source)
		}
		if length != nil {
			*length = C.size_t(sb.Len())
		}
		copyText(text, size, sb.String())
		return nil
	})
}

//export cupoolGoConfigure
func cupoolGoConfigure(t *C.thread, ordinal C.int, text *C.char) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error { return g.configure(withoutBlanks(text)) })
}

// withoutBlanks returns settings without blanks, which mean nothing there.
func withoutBlanks(settings *C.char) string {
	return strings.Join(strings.Fields(C.GoString(settings)), "")
}

// configure changes settings while the pool is open.
func (g *gpu) configure(text string) error {
	g.configuring.Lock()
	defer g.configuring.Unlock()
	if err := g.root.Configure(text); err != nil {
		return err
	}
	set, cfg := g.settings, g.root.Config() // of which what the text does not name may be the program's bound
	for _, key := range boundKey.FindAllStringSubmatch(text, -1) {
		if key[1] == "limit" {
			set.bytes = cfg.Limit
		} else {
			set.part = cfg.Fraction
		}
	}
	return g.changeBounds(set, g.changed) // the root has bounded itself alone
}

var boundKey = regexp.MustCompile(`(?:^|,)(limit|fraction|per_process_memory_fraction):`)

// copyText writes as much of a text as there is room for, and a 0 behind.
func copyText(to *C.char, size C.size_t, text string) {
	if to != nil && size > 0 {
		text = text[:min(uint64(len(text)), uint64(size)-1)]
		room := unsafe.Slice((*byte)(unsafe.Pointer(to)), len(text)+1)
		room[copy(room, text)] = 0
	}
}

//export cupoolGoSetLimit
func cupoolGoSetLimit(t *C.thread, ordinal C.int, bytes C.size_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error { return g.bound(bound{bytes: int64(bytes)}) })
}

//export cupoolGoSetFraction
func cupoolGoSetFraction(t *C.thread, ordinal C.int, fraction C.double) (st C.cupool_status) {
	defer caught(t, &st)
	if !(fraction >= 0 && fraction <= 1) {
		return done(t, faultf(C.CUPOOL_ERROR_INVALID, "the fraction %v is not between 0 and 1", float64(fraction)))
	}
	g, err := of(ordinal)
	if err == nil {
		switch fraction {
		case 1:
			err = g.bound(bound{})
		case 0:
			err = g.bound(bound{bytes: nothing})
		default:
			err = g.bound(bound{part: float64(fraction)})
		}
	}
	return done(t, err)
}

//export cupoolGoFraction
func cupoolGoFraction(t *C.thread, ordinal C.int, fraction *C.double) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		*fraction = C.double(g.fraction())
		return nil
	})
}

//export cupoolGoMemoryInfo
func cupoolGoMemoryInfo(t *C.thread, ordinal C.int, free, total, largest *C.size_t) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		if free != nil || total != nil {
			f, all, err := g.driver.MemInfo()
			if err != nil {
				return err
			}
			set(free, f)
			set(total, all)
		}
		if largest != nil {
			set(largest, g.root.Stats().LargestFree)
		}
		return nil
	})
}

func set(to *C.size_t, n int64) {
	if to != nil {
		*to = C.size_t(n)
	}
}

//export cupoolGoEnablePeer
func cupoolGoEnablePeer(t *C.thread, ordinal, peer C.int) C.cupool_status {
	return call(t, ordinal, func(g *gpu) error {
		p, err := of(peer)
		if err == nil && g != p {
			err = g.driver.enablePeer(p.driver)
		}
		return err
	})
}
