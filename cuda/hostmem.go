package cuda

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/cupool/cupool/device"
)

// hostMemory is hostMemInfo. Tests on the stand-in driver, which pins memory
// without taking it from the host, replace it.
var hostMemory = hostMemInfo

// hostMemInfo returns how much memory this program could still get without
// swapping, and how much there is at all, after Linux and the control group
// that the program runs in.
func hostMemInfo() (free, total int64, err error) {
	err = eachNumber("/proc/meminfo", func(name string, kib int64) {
		switch name {
		case "MemAvailable:":
			free = kib << 10
		case "MemTotal:":
			total = kib << 10
		}
	})
	if err != nil {
		return 0, 0, fmt.Errorf("cupool: size of the host's memory: %w: %w", device.ErrNotSupported, err)
	}
	if total == 0 {
		return 0, 0, fmt.Errorf("cupool: size of the host's memory: %w: /proc/meminfo does not tell", device.ErrNotSupported)
	}
	limit, used := groupMemory("/sys/fs/cgroup")
	return min(free, max(0, limit-used)), min(total, limit), nil
}

// groupMemory returns the limit of a control group, of version 2 or 1, and the
// bytes that it uses; the limit is MaxInt64 where there is none. Linux counts
// files that it keeps in memory as used, but gives them up for anything else, so
// they are taken off.
func groupMemory(root string) (limit, used int64) {
	for _, files := range []struct{ limit, used, stat, prefix string }{
		{"/memory.max", "/memory.current", "/memory.stat", ""},
		{"/memory/memory.limit_in_bytes", "/memory/memory.usage_in_bytes", "/memory/memory.stat", "total_"},
	} {
		limit, err := readNumber(root + files.limit)
		if err != nil { // absent, or "max"
			continue
		}
		used, err := readNumber(root + files.used)
		if err != nil {
			continue
		}
		_ = eachNumber(root+files.stat, func(name string, n int64) { // without it, files are in use
			if name == files.prefix+"inactive_file" || name == files.prefix+"active_file" {
				used -= n
			}
		})
		return limit, max(0, used)
	}
	return math.MaxInt64, 0
}

// eachNumber calls f with the name and the number that lines of a file begin
// with.
func eachNumber(path string, f func(name string, n int64)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	sc := bufio.NewScanner(file)
	for sc.Scan() {
		var name string
		var n int64
		if got, _ := fmt.Sscan(sc.Text(), &name, &n); got == 2 {
			f(name, n)
		}
	}
	return sc.Err()
}

func readNumber(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
}

// pinnedMemInfo returns how many bytes may still be page-locked, and how many
// the computer has. It keeps a part back: where locked pages leave next to
// nothing, Linux kills programs rather than refuse the lock.
func pinnedMemInfo() (free, total int64, err error) {
	free, total, err = hostMemory()
	return max(0, free-total/32), total, err
}

// pinnable returns ErrOutOfMemory when size more bytes are too much.
func pinnable(size int64) error {
	free, total, err := pinnedMemInfo()
	if err != nil {
		return nil // the driver will tell
	}
	if size > free {
		return fmt.Errorf("cupool: %w: page-locking %d bytes when %d of the host's %d may be", device.ErrOutOfMemory, size, free, total)
	}
	return nil
}
