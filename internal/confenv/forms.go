package confenv

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cupool/cupool/internal/bytesize"
)

// A Form is how a field of a configuration is written. What Format returns,
// Parse reads.
type Form struct {
	Allowed string // for errors: "must be " and this
	Format  func(field reflect.Value) string
	Parse   func(field reflect.Value, text string) bool // false: not allowed
}

// Bytes is the form of a size, an int64: 512MiB, 2G.
var Bytes = Form{
	"a size such as 512MiB or 2G",
	func(v reflect.Value) string { return bytesize.Exact(v.Int()) },
	func(v reflect.Value, text string) bool {
		n, err := bytesize.Parse(text)
		v.SetInt(n)
		return err == nil
	},
}

// BytesOrNone is the form of a size that "none" makes -1.
var BytesOrNone = Form{
	Bytes.Allowed + `, or "none"`,
	func(v reflect.Value) string {
		if v.Int() < 0 {
			return "none"
		}
		return Bytes.Format(v)
	},
	func(v reflect.Value, text string) bool {
		if text == "none" {
			v.SetInt(-1)
			return true
		}
		return Bytes.Parse(v, text)
	},
}

// Mebibytes is the form of a size that is a number of MiB.
var Mebibytes = Form{
	"a whole number of MiB, at least 1",
	func(v reflect.Value) string { return strconv.FormatFloat(float64(v.Int())/(1<<20), 'f', -1, 64) },
	func(v reflect.Value, text string) bool {
		const most = 1 << 40 // MiB
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n << 20)
		return err == nil && n > 0 && n < most
	},
}

// Folder is the form of a folder's name, of which "none" is the empty one.
var Folder = Form{
	`a folder, or "none"`,
	func(v reflect.Value) string { return cmp.Or(v.String(), "none") },
	func(v reflect.Value, text string) bool {
		if text == "none" {
			text = ""
		}
		v.SetString(text)
		return true
	},
}

// Count is the form of a whole number.
var Count = Form{
	"a whole number",
	func(v reflect.Value) string { return strconv.FormatInt(v.Int(), 10) },
	func(v reflect.Value, text string) bool {
		n, err := strconv.ParseInt(text, 10, 64)
		v.SetInt(n)
		return err == nil
	},
}

// Number is the form of a float64, of which allowed says what it may be.
func Number(allowed string) Form {
	return Form{
		allowed,
		func(v reflect.Value) string { return strconv.FormatFloat(v.Float(), 'g', -1, 64) },
		func(v reflect.Value, text string) bool {
			n, err := strconv.ParseFloat(text, 64)
			v.SetFloat(n)
			return err == nil && (n != 0 || !bytesize.Signs(text))
		},
	}
}

// Duration is the form of a time.Duration.
var Duration = Form{
	"a duration such as 10s",
	func(v reflect.Value) string { return time.Duration(v.Int()).String() },
	func(v reflect.Value, text string) bool {
		d, err := time.ParseDuration(text)
		v.SetInt(int64(d))
		return err == nil && (d != 0 || !bytesize.Signs(text))
	},
}

// Names is the form of a constant of a type of its own, which has a String method.
// The first name is that of 0, and so on.
func Names(names []string) Form {
	return Form{
		"one of " + strings.Join(names, ", "),
		printed,
		func(v reflect.Value, text string) bool {
			i := slices.Index(names, text)
			v.SetInt(int64(i))
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
var Bool = Form{
	"True or False",
	func(v reflect.Value) string { return truth(v.Bool()) },
	func(v reflect.Value, text string) bool {
		v.SetBool(text == "True")
		return text == "True" || text == "False"
	},
}

// Switch is the form of a constant that True makes on and False makes off.
func Switch(on, off int64) Form {
	return Form{
		Bool.Allowed,
		func(v reflect.Value) string { return truth(v.Int() == on) },
		func(v reflect.Value, text string) bool {
			if v.SetInt(off); text == "True" {
				v.SetInt(on)
			}
			return text == "True" || text == "False"
		},
	}
}

func truth(yes bool) string {
	if yes {
		return "True"
	}
	return "False"
}

// Parsed is the form of a value with a String method, whose text parse reads as a
// T of the same kind.
func Parsed[T any](allowed string, parse func(string) (T, error)) Form {
	return Form{
		allowed,
		printed,
		func(v reflect.Value, text string) bool {
			x, err := parse(text)
			v.Set(reflect.ValueOf(x).Convert(v.Type()))
			return err == nil
		},
	}
}

func printed(v reflect.Value) string { return fmt.Sprint(v.Interface()) }
