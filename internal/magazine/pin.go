//go:build !invariants

package magazine

import _ "unsafe" // for go:linkname

//go:linkname procPin runtime.procPin
func procPin() int

//go:linkname procUnpin runtime.procUnpin
func procUnpin()
