package block

import "golang.org/x/sys/unix"

// useHugePages asks for huge pages under whole ones of them. It is a hint: a
// system that has none, or no more, says so and is not heard.
func useHugePages(pages []byte) { _ = unix.Madvise(pages, unix.MADV_HUGEPAGE) }
