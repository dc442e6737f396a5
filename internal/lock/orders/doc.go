// Package orders plays calls that meet in the orders in which they can take their locks.
// It is there in builds with -tags invariants.
package orders
