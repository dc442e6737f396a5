package cupool

import (
	"slices"

	"github.com/cupool/cupool/internal/block"
)

// Which streams were recorded on a block. Nearly always it is one, and
// Block.Uses names it: its index, plus one. The streams of a block that has
// more are in a set of its owner, and Block.Uses is the set's index with
// manyUses.

const manyUses = 1 << 31

// useSet is the streams recorded on one block, where they are several.
type useSet struct {
	streams []*Stream
	waiting int // of them, while the block is Pending
}

// setLocked returns the set of a block that has one, or nil.
func (s *Stream) setLocked(b *block.Block) *useSet {
	if b.Uses()&manyUses == 0 {
		return nil
	}
	return &s.uses[b.Uses()&^manyUses]
}

// addUseLocked notes that stream u uses the block.
func (s *Stream) addUseLocked(b *block.Block, u *Stream) {
	switch {
	case b.Uses() == 0:
		b.SetUses(u.index + 1)
		return
	case b.Uses() == u.index+1:
		return
	case b.Uses()&manyUses == 0:
		s.giveSetLocked(b, s.base.c.stream(b.Uses()-1))
	}
	if set := s.setLocked(b); !slices.Contains(set.streams, u) {
		set.streams = append(set.streams, u)
	}
}

// giveSetLocked gives a block a set, with the one stream that it has.
func (s *Stream) giveSetLocked(b *block.Block, first *Stream) {
	var i uint32
	if n := len(s.usesFree); n > 0 {
		i = s.usesFree[n-1]
		s.usesFree = s.usesFree[:n-1]
	} else {
		i = uint32(len(s.uses))
		s.uses = append(s.uses, useSet{})
	}
	set := &s.uses[i]
	set.streams = append(set.streams, first)
	b.SetUses(i | manyUses)
}

// dropUsesLocked forgets which streams were recorded on a block.
func (s *Stream) dropUsesLocked(b *block.Block) {
	if set := s.setLocked(b); set != nil {
		clear(set.streams)
		*set = useSet{streams: set.streams[:0]}
		s.usesFree = append(s.usesFree, b.Uses()&^manyUses)
	}
	b.SetUses(0)
}

// moveUsesLocked hands a block's set over with the block.
func (s *Stream) moveUsesLocked(b *block.Block, heir *Stream) {
	if set := s.setLocked(b); set != nil {
		b.SetUses(uint32(len(heir.uses)) | manyUses)
		heir.uses = append(heir.uses, *set)
	}
}
