package cupool

// stranded keeps track of memory that lies idle on other streams than the
// one that needs it. Guarded by Caching.reclaim.
type stranded struct {
	estates []*Stream // closed streams that still hold memory
}

// lender is what is remembered of a stream whose idle memory others took.
type lender struct {
	lent    bool // since it last missed
	regrets int  // times that it missed after that
}

// bequeath hands over what a closed stream leaves.
func (s *Stream) bequeath() { s.moveTo(s.c.def) }
