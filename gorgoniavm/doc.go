// Package gorgoniavm runs Gorgonia's graphs with every value in the memory
// pool of a cupool.Engine.
package gorgoniavm
