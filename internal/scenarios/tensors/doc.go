// Package tensors tests tensors whose memory the CPU cannot touch, or that were freed.
package tensors
