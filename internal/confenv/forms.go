package confenv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool/internal/bytesize"
)

// A Form is how a field of a configuration C is written. What Format returns,
// Parse reads.
type Form[C any] struct {
	Allowed string // for errors: "must be " and this
	IsSet   func(*C) bool
	Format  func(*C) string
	Parse   func(*C, string) bool // false: not allowed
}

// Bytes is the form of a size: 512MiB, 2G.
func Bytes[C any](at func(*C) *int64) Form[C] {
	return Form[C]{
		"a size such as 512MiB or 2G", func(c *C) bool { return *at(c) != 0 },
		func(c *C) string { return bytesize.Exact(*at(c)) },
		func(c *C, text string) (ok bool) {
			n, err := bytesize.Parse(text)
			*at(c) = n
			return err == nil
		},
	}
}

// BytesOrNone is the form of a size that "none" makes -1.
func BytesOrNone[C any](at func(*C) *int64) Form[C] {
	f := Bytes(at)
	number := f
	f.Allowed += `, or "none"`
	f.Format = func(c *C) string {
		if *at(c) < 0 {
			return "none"
		}
		return number.Format(c)
	}
	f.Parse = func(c *C, text string) bool {
		if text == "none" {
			*at(c) = -1
			return true
		}
		return number.Parse(c, text)
	}
	return f
}

// Mebibytes is the form of a size that is a number of MiB.
func Mebibytes[C any](at func(*C) *int64) Form[C] {
	const most = 1 << 40 // MiB
	f := Bytes(at)
	f.Allowed = "a whole number of MiB, at least 1"
	f.Format = func(c *C) string { return strconv.FormatFloat(float64(*at(c))/(1<<20), 'f', -1, 64) }
	f.Parse = func(c *C, text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		*at(c) = n << 20
		return err == nil && n > 0 && n < most
	}
	return f
}

// Number is the form of a number, of which allowed says what it may be.
func Number[C any](allowed string, at func(*C) *float64) Form[C] {
	return Form[C]{
		allowed, func(c *C) bool { return *at(c) != 0 },
		func(c *C) string { return strconv.FormatFloat(*at(c), 'g', -1, 64) },
		func(c *C, text string) bool {
			n, err := strconv.ParseFloat(text, 64)
			*at(c) = n
			return err == nil
		},
	}
}

// Duration is the form of a time, of which allowed says what it may be.
func Duration[C any](allowed string, at func(*C) *time.Duration) Form[C] {
	return Form[C]{
		allowed, func(c *C) bool { return *at(c) != 0 },
		func(c *C) string { return at(c).String() },
		func(c *C, text string) (ok bool) {
			d, err := time.ParseDuration(text)
			*at(c) = d
			return err == nil
		},
	}
}

// Names is the form of a constant. The first name is that of 0, and so on.
func Names[C any, T interface {
	~int
	fmt.Stringer
}](names []string, at func(*C) *T) Form[C] {
	return Form[C]{
		"one of " + strings.Join(names, ", "), func(c *C) bool { return *at(c) != 0 },
		func(c *C) string { return (*at(c)).String() },
		func(c *C, text string) bool {
			i := slices.Index(names, text)
			*at(c) = T(i)
			return i >= 0
		},
	}
}

// Name returns the name of a constant of a type, as Names has them, or
// "Type(number)" where it has none.
func Name(typ string, names []string, i int) string {
	if i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", typ, i)
}

// Bool is the form of a truth value: True or False exactly, as PyTorch has it.
func Bool[C any](get func(*C) bool, set func(*C, bool)) Form[C] {
	return Form[C]{
		"True or False", get,
		func(c *C) string {
			if get(c) {
				return "True"
			}
			return "False"
		},
		func(c *C, text string) bool {
			set(c, text == "True")
			return text == "True" || text == "False"
		},
	}
}
