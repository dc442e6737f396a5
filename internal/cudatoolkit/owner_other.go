//go:build !unix

package cudatoolkit

import "io/fs"

// ownedByUs: the temporary directory is the user's own here.
func ownedByUs(fs.FileInfo) bool { return true }
