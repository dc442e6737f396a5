package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool/device"
	"github.com/cupool/cupool/internal/bytesize"
	"github.com/cupool/cupool/internal/oomhint"
	"github.com/cupool/cupool/snapshot"
)

// The errors of this package, to be compared with errors.Is. Where numbers
// belong to them they come inside a typed error: *OOMError, *BlockError,
// *LeakError, *WaitError, *CorruptionError, *ConfigError.
var (
	// ErrOutOfMemory: neither the cache nor the device has the memory.
	ErrOutOfMemory = device.ErrOutOfMemory
	// ErrNotSupported: the device, driver or build cannot do what was asked.
	ErrNotSupported = device.ErrNotSupported
	// ErrDeviceLost: the device failed for good; nothing will work again.
	ErrDeviceLost = device.ErrDeviceLost
	// ErrNotPermitted: a function given to Stream.Launch waits for a stream that runs
	// such a function, its own above all, which would never end. Wait outside of it.
	ErrNotPermitted = device.ErrNotPermitted
	// ErrClosed: the allocator, stream, buffer or device was closed before.
	ErrClosed = device.ErrClosed
	// ErrAsleep: the allocator sleeps and has no memory until it is woken.
	ErrAsleep = errors.New("asleep")
	// ErrInvalidHandle: no such stream, event, pool or memory, or it was
	// destroyed before.
	ErrInvalidHandle = device.ErrInvalidHandle
	// ErrInvalidRange: an address range outside the memory it should be in.
	ErrInvalidRange = device.ErrInvalidRange

	// ErrInvalidSize: a negative size, or one no device can have.
	ErrInvalidSize = errors.New("invalid size")
	// ErrDoubleFree: the block was freed before.
	ErrDoubleFree = errors.New("double free")
	// ErrStaleBlock: a double free of a block whose memory has been handed
	// out again since. It matches ErrDoubleFree too.
	ErrStaleBlock = fmt.Errorf("%w of a recycled block", ErrDoubleFree)
	// ErrUseAfterFree: the block was freed before it was to be used.
	ErrUseAfterFree = device.ErrUseAfterFree
	// ErrForeignPointer: the address or block is not of this allocator.
	ErrForeignPointer = device.ErrForeignPointer
	// ErrInteriorPointer: the address is inside a block, not at its start.
	ErrInteriorPointer = errors.New("interior pointer")
	// ErrSizeMismatch: the size is not the one that was allocated.
	ErrSizeMismatch = device.ErrSizeMismatch
	// ErrForeignStream: the stream belongs to another allocator or device.
	ErrForeignStream = device.ErrForeignStream
	// ErrCorrupted: memory was written that the writer did not own.
	ErrCorrupted = device.ErrCorrupted
	// ErrInvalidConfig: a field of a Config is out of its range.
	ErrInvalidConfig = device.ErrInvalidConfig
)

// BlockError is a call on a block or address that cannot be right. Nothing
// was changed. It unwraps to one of the errors above.
type BlockError struct {
	Op     string       // what was tried: "free", "copy to", "record stream", ...
	Ptr    Ptr          // the address in question; 0: there is none
	Size   int64        // bytes, as the caller has it; -1: not given
	Stream StreamHandle // the stream that owns the memory, where known
	Err    error        // why not
	Detail string       // what to know or do about it
}

// Error says what was tried on which address, of how many bytes and on which stream, as far
// as these are there, why not, and what to know about it.
func (e *BlockError) Error() string {
	var sb strings.Builder
	op, of := strings.TrimSuffix(strings.TrimSuffix(e.Op, " from"), " to"), " of "
	switch {
	case op != e.Op && e.Ptr != 0:
		of = strings.TrimPrefix(e.Op, op) + " "
	case strings.HasSuffix(op, " stream"):
		of = " for "
	}
	sb.WriteString("cupool: " + op)
	switch bytes := bytesize.Count(e.Size); {
	case e.Ptr != 0 && e.Size > 0:
		fmt.Fprintf(&sb, "%s%v (%s)", of, e.Ptr, bytes)
	case e.Ptr != 0:
		fmt.Fprintf(&sb, "%s%v", of, e.Ptr)
	case e.Size > 0:
		fmt.Fprintf(&sb, "%s%s", of, bytes)
	}
	if e.Stream != 0 {
		fmt.Fprintf(&sb, " on %v", e.Stream)
	}
	fmt.Fprintf(&sb, ": %v", e.Err)
	if e.Detail != "" {
		fmt.Fprintf(&sb, ": %s", e.Detail)
	}
	return sb.String()
}

// Unwrap returns the reason.
func (e *BlockError) Unwrap() error { return e.Err }

// OOMError says why an allocation failed after everything was tried. It
// matches ErrOutOfMemory. The allocator goes on working.
type OOMError struct {
	Device      string
	Stream      StreamHandle
	Requested   int64 // bytes asked for
	Rounded     int64 // bytes of the block that would have held them
	Segment     int64 // bytes of the segment that the device refused
	Live        int64 // bytes in blocks that the program holds
	Pending     int64 // bytes freed, but still used by other streams
	Cached      int64 // bytes free in the pools
	LargestFree int64 // bytes of the largest cached block
	Reserved    int64 // bytes held from the device
	OtherPools  int64 // bytes held by the other members of the family (NewPool)
	DeviceFree  int64 // bytes the device has left; -1: it did not say
	DeviceTotal int64 // bytes the device has; -1: it did not say
	Limit       int64 // bytes that Config allows to reserve; 0: no limit
	// Fragmentation is the part of the pool's memory that is free and not in the largest
	// free block (Stats.Fragmentation).
	Fragmentation float64
	Hint          string // what would have helped
	Cause         error  // what the device said last

	// Reason is the one that would have to go for the request to fit:
	// "fragmentation" (what is free would be enough in one piece, and is much beside
	// what is live), "limit", "another process" (or what the driver holds for this one),
	// "pending frees" (other streams still use freed memory), "other pools", or "too
	// much" (the program holds, or asks for, too much).
	Reason string
	// Settings are up to two fields of Config or PoolConfig, with their values, or
	// calls that would most likely have helped, the best first.
	Settings []string
	// Lines are the lines of the program that hold most, of all pools of the allocator: at
	// most three, the largest first. They are known of what a history recorded
	// (Config.History, Pool.StartHistory). What it did not stands under its label, or none.
	Lines []snapshot.Line
	// Table is who holds memory: every pool of the allocator, by stream and label,
	// the largest first. Where the pools have more than 16,384 blocks, it is of so many,
	// those of large segments first, and the others of a pool are one row (Holder.Rest).
	Table []snapshot.Holder
	// Time is when the allocation failed.
	Time time.Time
	// Snapshot is the memory of the pool that failed. Such pictures take at most a
	// twentieth of a program's time: an error that comes too soon after one has nil. The
	// first error has one. It has the segments with the first 16,384 blocks, those of large
	// blocks first, and no other ones; Pool.Snapshot has all.
	Snapshot *Snapshot

	late      error  // a *WaitError of work that holds memory
	recording string // how it becomes known what holds memory; "": a history is on
}

// Error describes the failure in one line, and then the Reason, the Lines, the
// Settings and the first rows of the Table, a line each.
func (e *OOMError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: out of memory on %s: %s requested (block %s, segment %s); live %s, pending %s, cached %s (largest free %s, fragmentation %.0f %%), reserved %s",
		e.Device, bytesize.Format(e.Requested), bytesize.Format(e.Rounded), bytesize.Format(e.Segment), bytesize.Format(e.Live), bytesize.Format(e.Pending),
		bytesize.Format(e.Cached), bytesize.Format(e.LargestFree), 100*e.Fragmentation, bytesize.Format(e.Reserved))
	if e.Limit > 0 {
		fmt.Fprintf(&sb, " of a limit of %s", bytesize.Format(e.Limit))
	}
	if e.OtherPools > 0 {
		fmt.Fprintf(&sb, "; other pools hold %s", bytesize.Format(e.OtherPools))
	}
	if e.DeviceTotal >= 0 {
		fmt.Fprintf(&sb, "; device has %s free of %s", bytesize.Format(e.DeviceFree), bytesize.Format(e.DeviceTotal))
	}
	if e.Hint != "" {
		fmt.Fprintf(&sb, "; %s", e.Hint)
	}
	if e.late != nil {
		fmt.Fprintf(&sb, "; memory is held by work that is late: %v", e.late)
	}
	for _, s := range e.Why() {
		fmt.Fprintf(&sb, "\n\t%s", s)
	}
	for _, s := range e.Settings {
		fmt.Fprintf(&sb, "\n\twould have helped: %s", s)
	}
	sb.WriteString(holderTable(e.Table))
	return sb.String()
}

// cause is the Reason for people: how much the program holds, where that is too much.
func (e *OOMError) cause() string {
	of := e.DeviceTotal
	if of < 0 {
		of = e.Limit
	}
	if e.Reason != oomhint.TooMuch || of <= 0 {
		return e.Reason
	}
	live := int64(0)
	for _, h := range e.Table {
		live += h.Live
	}
	return fmt.Sprintf("the program holds %s of %s and asks for %s more", bytesize.Format(max(live, e.Live)), bytesize.Format(of), bytesize.Format(e.Rounded))
}

// Why says in a few texts, a line each, what the cause is and who holds most: the Lines,
// and how lines are recorded where neither these nor labels are known.
func (e *OOMError) Why() (list []string) {
	if e.Reason != "" {
		list = append(list, "cause: "+e.cause())
	}
	known := true
	for _, l := range e.Lines {
		list = append(list, fmt.Sprintf("held: %v", l))
		known = known && (len(l.Stack) > 0 || l.Label != "")
	}
	if !known && e.recording != "" {
		list = append(list, e.recording)
	}
	return list
}

// maxHolders is how many rows of a Table the text of an OOMError has.
const maxHolders = 8

// holderTable prints who holds memory, a line each.
func holderTable(holders []snapshot.Holder) string {
	if len(holders) == 0 {
		return ""
	}
	var sb strings.Builder
	fmt.Fprintf(&sb, "\n\t%10s %10s %10s", "live", "pending", "cached")
	row := func(h snapshot.Holder, who string) {
		fmt.Fprintf(&sb, "\n\t%10s %10s %10s  %s", bytesize.Format(h.Live), bytesize.Format(h.Pending), bytesize.Format(h.Cached), who)
	}
	var others snapshot.Holder
	for i, h := range holders {
		if i >= maxHolders {
			others.Live, others.Pending, others.Cached = others.Live+h.Live, others.Pending+h.Pending, others.Cached+h.Cached
			continue
		}
		who := fmt.Sprintf("stream %d", h.Stream)
		if h.Rest {
			who = fmt.Sprintf("%d more live blocks of any stream", h.Blocks)
		}
		if h.Pool != "" {
			who = fmt.Sprintf("pool %q, %s", h.Pool, who)
		}
		if h.Label != "" {
			who += fmt.Sprintf(", label %q", h.Label)
		}
		row(h, who)
	}
	if n := len(holders) - maxHolders; n > 0 {
		row(others, fmt.Sprintf("%d more", n))
	}
	return sb.String()
}

// LastOOM returns the last failure for lack of memory of the allocator and its
// private pools, after Close too, or nil. It may have no Snapshot; FirstOOM has one.
func (c *Pool) LastOOM() *OOMError {
	if c.isNone() {
		return nil
	}
	return c.dev.lastOOM.Load()
}

// FirstOOM returns the first failure for lack of memory of the allocator and its private
// pools, with its Snapshot, after Close too, or nil. It stays, however many follow.
func (c *Pool) FirstOOM() *OOMError {
	if c.isNone() {
		return nil
	}
	return c.dev.firstOOM.Load()
}

// Unwrap returns ErrOutOfMemory, the device's own error, and a *WaitError where
// work was late that holds memory.
func (e *OOMError) Unwrap() []error {
	errs := []error{ErrOutOfMemory}
	for _, err := range []error{e.Cause, e.late} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Leak is a block that was live when its allocator was closed, or Leaks called.
type Leak struct {
	Ptr    Ptr
	Size   int64 // bytes as requested
	Stream StreamHandle
	Stack  string // where it was allocated, where that was recorded (Config.History)
	Label  string // of WithLabel, if any
}

// LeakGroup is the leaks from one place in the program under one label.
type LeakGroup struct {
	Blocks int
	Bytes  int64  // sum of their sizes as requested
	Stack  string // where they were allocated, as Go prints it; "": not recorded
	Label  string // of WithLabel, if any
}

// LeakError lists the blocks that were live at Close, by address. Their
// memory was given back to the device all the same. Its text has the ten largest
// groups, a line each.
type LeakError struct {
	Leaks []Leak
	Bytes int64 // sum of their sizes as requested
}

// maxGroupsShown bounds the text of a LeakError.
const maxGroupsShown = 10

func (e *LeakError) Error() string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "cupool: leaked %s, %s", blocks(len(e.Leaks)), bytesize.Format(e.Bytes))
	groups := e.Groups()
	for i, g := range groups {
		if i == maxGroupsShown {
			var more LeakGroup
			for _, g := range groups[i:] {
				more.Blocks, more.Bytes = more.Blocks+g.Blocks, more.Bytes+g.Bytes
			}
			fmt.Fprintf(&sb, "\n\tand %d more such places: %s, %s", len(groups)-i, blocks(more.Blocks), bytesize.Format(more.Bytes))
			break
		}
		fmt.Fprintf(&sb, "\n\t%v", g)
	}
	return sb.String()
}

// Groups returns the leaks by stack and label, those of the most bytes first.
func (e *LeakError) Groups() []LeakGroup {
	if e == nil {
		return nil
	}
	type key struct{ stack, label string }
	at := map[key]int{}
	var list []LeakGroup
	for _, l := range e.Leaks {
		k := key{l.Stack, l.Label}
		j, ok := at[k]
		if !ok {
			j = len(list)
			at[k], list = j, append(list, LeakGroup{Stack: l.Stack, Label: l.Label})
		}
		list[j].Blocks++
		list[j].Bytes += l.Size
	}
	slices.SortStableFunc(list, func(a, b LeakGroup) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Blocks, a.Blocks), strings.Compare(a.Label, b.Label))
	})
	return list
}

// String describes the group in a line: "3 blocks, 12 MiB, allocated at main.load
// (train.go:42)", with up to two callers.
func (g LeakGroup) String() string {
	return snapshot.Line{Label: g.Label, Stack: stackOf(g.Stack).Program(), Blocks: int64(g.Blocks), Bytes: g.Bytes}.String()
}

// stackOf reads a stack that is printed as Go does.
func stackOf(text string) (s snapshot.Stack) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		at := strings.TrimSpace(lines[i+1])
		colon := strings.LastIndexByte(at, ':')
		line, err := strconv.Atoi(at[colon+1:])
		if err != nil {
			return s
		}
		s = append(s, snapshot.Frame{Function: lines[i], File: at[:max(colon, 0)], Line: line})
	}
	return s
}

func blocks(n int) string {
	if n == 1 {
		return "1 block"
	}
	return fmt.Sprintf("%d blocks", n)
}

// WaitError says that a wait for the work of a Stream ended before the work was
// done, as Config.WaitTimeout was over or the context of the call was done.
type WaitError = device.WaitError

// ConfigError names the Field of a Config that cannot be, its Value and the
// Reason. It matches ErrInvalidConfig.
type ConfigError = device.ConfigError

// CorruptionError is a block that Config.Sanitize found to be overrun, or to be
// written after it was freed.
type CorruptionError = device.CorruptionError

// join is errors.Join that returns an error which is alone as it is.
func join(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// onlyLost keeps the error of a lost device, which ends everything, and drops
// others, which leave memory waiting.
func onlyLost(err error) error {
	if errors.Is(err, ErrDeviceLost) {
		return err
	}
	return nil
}

// onlyLostOrLate is onlyLost that keeps a *WaitError, too.
func onlyLostOrLate(err error) error {
	if isLate(err) {
		return err
	}
	return onlyLost(err)
}

// isLate reports whether an error is that of a wait that ended before the work.
func isLate(err error) bool {
	if err == nil {
		return false // without memory for what errors.As fills
	}
	var late *WaitError
	return errors.As(err, &late)
}

// notLate drops the error of a wait that ended before the work.
func notLate(err error) error {
	if isLate(err) {
		return nil
	}
	return err
}
