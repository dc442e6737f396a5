// Package gputest has the kernels that tests on a GPU use: one that keeps a
// stream busy, and some that write and check patterns. They are PTX written
// by hand, for which no toolkit is needed and which every GPU from compute
// capability 7.5 on runs. The stand-in driver of internal/fakecuda knows these
// kernels by name.
package gputest
