// Package limits tests what the allocator reserves, gives back and refuses.
package limits
