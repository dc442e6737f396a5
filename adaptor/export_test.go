package adaptor

// Kept returns how many blocks a Recording knows.
func Kept(r *Recording) int { return len(r.ids) }

// Adopted returns for how many streams a Fallback knows those that were adopted.
func Adopted(f *Fallback) int { return len(f.adopted) }

// Given returns how many blocks of its second allocator a Fallback knows.
func Given(f *Fallback) int { return len(f.given) }
