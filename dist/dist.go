// Package dist is what the ranks of a group do together: they exchange what their
// devices hold (Comm) and train one network on parts of the same batch (Reducer).
// FromEnv says which rank a launcher has made of a process.
//
// Local makes the Comms of one process, on every device, and package nccl those of
// GPUs, in one process or in many, on one machine or on several.
//
//	l, err := dist.FromEnv()
//	comm, err := nccl.New(ctx, pool, nccl.Config{Rank: l.Rank, Size: l.Size, Address: l.Address, Token: l.Token})
//	err = comm.AllReduce(m, m, dist.Avg, stream)
package dist

import "github.com/cupool/cupool"

// A Comm is one rank of a group of Size ranks, which all call the same methods in
// the same order. Ranks count from 0.
//
// A method queues its work on a stream and returns: the stream's later work sees
// the results, and memory is recorded on the stream (Memory.Record), so that it
// may be freed at once, outside of Group. All ranks give memory of the same type and
// count, unless a method says otherwise. A Memory may be both dst and src, and what
// AllGather and ReduceScatter have of one rank may be this rank's part of the other
// Memory; else the two do not overlap.
//
// Methods fail with cupool.ErrSizeMismatch for counts and types that do not fit, with
// cupool.ErrNotSupported for a Type or Op that is none, or that does not take the other,
// as Memory.Record does for elements outside of their memory, with
// cupool.ErrForeignStream for a stream of another device, with ErrRank for
// a rank that is not there, and with cupool.ErrClosed after Close and Abort. What
// goes wrong while the stream works is Err's, and the error of every later call.
//
// The methods are safe from several goroutines, as far as all ranks have the same
// order.
type Comm interface {
	Rank() int
	Size() int

	// AllReduce sets dst on every rank to op over the src of all ranks. Local
	// adds in the order of the ranks: all of them get the same bits, in every
	// run.
	AllReduce(dst, src Memory, op Op, s *cupool.Stream) error
	// Broadcast sets dst on every rank to the src of root. The src of others
	// is ignored.
	Broadcast(dst, src Memory, root int, s *cupool.Stream) error
	// AllGather sets dst to the src of all ranks, one after the other. dst has
	// Size times as many elements.
	AllGather(dst, src Memory, s *cupool.Stream) error
	// ReduceScatter sets dst to this rank's part of op over the src of all
	// ranks. src has Size times as many elements.
	ReduceScatter(dst, src Memory, op Op, s *cupool.Stream) error
	// Send sends src to a rank, which receives as many elements.
	Send(src Memory, to int, s *cupool.Stream) error
	// Recv sets dst to what a rank sends.
	Recv(dst Memory, from int, s *cupool.Stream) error
	// Group calls f, and the calls of this Comm in f are one: a Send and a Recv
	// in it do not wait for each other, and collective calls go together. No
	// call in it uses the dst of another one. All ranks group the same
	// collective calls. Their work is queued when f has returned: memory is to be
	// freed after Group. It returns f's error, or its own; after f's error none
	// of the calls is made. f makes no Group of the same Comm, as Local's would wait
	// for itself. Other goroutines do not call this Comm meanwhile: their calls
	// would be the Group's.
	Group(f func() error) error

	// Err returns what went wrong so far, or nil. It does not wait.
	Err() error
	// Abort ends the rank and what it has queued, without waiting for others,
	// whose work fails, too.
	Abort() error
	// Close waits for what this rank has queued and ends it.
	Close() error
}
