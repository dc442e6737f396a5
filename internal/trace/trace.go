// Package trace holds recorded sequences of allocations: what a program
// asked of its allocator, in order, with what is needed to ask it again.
//
// A trace is read from text (Read), gzip or not, one event a line, fields
// apart by blanks:
//
//	a ID BYTES STREAM   allocate, to be used on a stream; 0 is the default one
//	f ID                free
//	r ID STREAM         the block is used on another stream too (record_stream)
//	e EVENT STREAM      record an event at the present end of a stream
//	w EVENT STREAM      the stream waits for the event
//	# ...               a comment
//
// or from a snapshot that torch.cuda.memory._dump_snapshot wrote
// (snapshot.go). IDs and events are any numbers; an ID names one block from
// its a to its f and may be used again after that, an event may be recorded
// again. Blocks that are still live at the end are fine.
package trace

import (
	"fmt"
	"strconv"
)

// Op is what an Event does.
type Op uint8

// The operations, with the fields of Event that they use.
const (
	Alloc  Op = iota + 1 // ID, Size, Stream
	Free                 // ID
	Use                  // ID, Stream: RecordStream
	Record               // ID of an event, Stream
	Wait                 // ID of an event, Stream
)

// letters are the operations as they are written in text.
var letters = [...]byte{Alloc: 'a', Free: 'f', Use: 'r', Record: 'e', Wait: 'w'}

// Event is one step of a trace, in 16 bytes without pointers, so that
// reading it hardly disturbs what is being measured.
type Event struct {
	Size   int64  // bytes as requested
	ID     uint32 // of the block, in order of allocation; or of the event
	Stream uint16 // index into Trace.Streams
	Op     Op
}

// Trace is a sequence of events.
type Trace struct {
	Name   string // of the file
	Events []Event

	Blocks  int     // allocations; their IDs are 0 to Blocks-1, in order
	Marks   int     // events that are recorded; their IDs are 0 to Marks-1
	Streams []int64 // the streams' own numbers; Streams[0] is 0, the default one

	PeakRequested int64 // the most bytes that were live at once, as requested

	// What a snapshot holds besides.
	Failed  int // allocations that failed then; they are not in Events
	Skipped int // frees of blocks that were allocated before the trace began
}

// AppendEvent appends the line of text that says so. What the operation has no
// use for is left out.
func AppendEvent(line []byte, op Op, id, size, stream int64) []byte {
	line = append(line, letters[op])
	number := func(n int64) { line = strconv.AppendInt(append(line, ' '), n, 10) }
	number(id)
	if op == Alloc {
		number(size)
	}
	if op != Free {
		number(stream)
	}
	return append(line, '\n')
}

// ParseError says where a trace is damaged and how.
type ParseError struct {
	File   string
	Line   int // of text, from 1; 0: none
	Event  int // of a snapshot, from 0; -1: none
	Reason string
	Err    error // behind the reason, such as an error of reading; nil where the contents are wrong
}

// Unwrap returns Err.
func (e *ParseError) Unwrap() error { return e.Err }

// Error prints "file:line: reason".
func (e *ParseError) Error() string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Reason)
	case e.Event >= 0:
		return fmt.Sprintf("%s: event %d: %s", e.File, e.Event, e.Reason)
	default:
		return fmt.Sprintf("%s: %s", e.File, e.Reason)
	}
}
