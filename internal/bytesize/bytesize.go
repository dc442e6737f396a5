// Package bytesize is the text form of sizes in bytes: Format is for people to
// read, Exact for what is read again or compared. Parse reads both, of Format's
// up to TiB.
package bytesize

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Format prints a size for people, in binary units and with four digits:
// "512 B", "1.5 KiB", "20 MiB", "1.15 GiB". Messages, statistics and names of
// devices have it.
func Format(n int64) string {
	const units = "KMGTPE"
	if n > -1024 && n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/1024, 0
	for ; (v >= 1024 || v <= -1024) && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.4g %ciB", v, units[i])
}

// Exact prints a size without rounding it, in the largest unit of which it is a
// whole number: "512", "3K", "20M", "1025M". Settings, snapshots and the
// descriptions of blocks have it.
func Exact(n int64) string {
	for _, u := range []struct {
		shift uint
		name  string
	}{{30, "G"}, {20, "M"}, {10, "K"}} {
		if n != 0 && n&(1<<u.shift-1) == 0 {
			return fmt.Sprintf("%d%s", n>>u.shift, u.name)
		}
	}
	return fmt.Sprint(n)
}

// Parse reads a size: a number of bytes, or one with a unit of K, M, G, T
// (powers of 1,024), with or without "iB" or "B" behind it. A whole number is read
// exactly, and a fraction of a unit to the whole byte below it. Sizes of 4 EiB and more
// are refused, and those of less than a byte, too: 0 may mean no bound. The error says
// what is wrong with the text, which it does not repeat.
func Parse(s string) (int64, error) {
	const tooLarge = "has an unknown unit or is too large"
	num := strings.TrimRight(s, "KMGTiBkmgtb ")
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(s[len(num):])), "B"), "I")
	shift, known := map[string]uint{"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
	if n, err := strconv.ParseUint(num, 10, 64); err == nil {
		if !known || n >= 1<<(62-shift) {
			return 0, errors.New(tooLarge)
		}
		return int64(n << shift), nil
	}
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || !(v >= 0) || num == "" { // not a number is refused too
		return 0, errors.New("is not a number of bytes such as 4096, 512MiB or 2G")
	}
	if v *= float64(uint64(1) << shift); !known || v >= 1<<62 {
		return 0, errors.New(tooLarge)
	}
	if v < 1 && Signs(num) {
		return 0, errors.New("is less than a byte")
	}
	return int64(v), nil
}

// Signs reports whether the text of a number has what that of 0 has not: a digit or a
// minus. A number that is read as 0 and has them is too small to be held, or is -0.
func Signs(number string) bool { return strings.ContainsAny(number, "-123456789") }

// Count prints a number of bytes as it is: "1 byte", "7 bytes".
func Count(n int64) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}
