//go:build !invariants

// Package invariant says whether this build checks the allocator's rules
// after every change of its books (-tags invariants).
package invariant

// Enabled is true in builds with -tags invariants.
const Enabled = false
