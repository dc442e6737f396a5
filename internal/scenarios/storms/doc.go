// Package storms tests the allocator when many goroutines, streams and pools come and go.
package storms
