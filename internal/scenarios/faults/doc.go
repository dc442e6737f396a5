// Package faults tests the allocator when driver calls fail, a device is lost, and arguments are wrong.
package faults
