package refs

// MostGone is how many addresses without holders are kept, at least.
const MostGone = mostGone

// Addresses returns how many addresses are kept.
func (r *Blocks) Addresses() int { return len(r.refs) }
