package dist

import "errors"

// ErrRank: a rank that the group does not have, or that is gone.
var ErrRank = errors.New("rank not there")
