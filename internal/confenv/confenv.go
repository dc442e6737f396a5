// Package confenv reads a configuration from variables of the environment, in
// the syntax of PyTorch's allocator: "KEY:VALUE,KEY:VALUE,...".
//
// A Table has the keys. Several may set the same field, if they agree; the first has the
// field's own name, and a variable of the environment beside it. A field that the program
// has set stays, and the errors name keys, not fields.
package confenv

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/cupool/cupool/device"
)

// A Table is what may be said of a configuration C, a struct.
type Table[C any] struct {
	Variable string // of the environment that holds a list of keys and values
	Prefix   string // with a field's first key, in capitals: the variable that sets it alone
	Keys     []Key
	Idle     []Idle
	Others   []string // beginnings, behind Prefix, of variables that are somebody else's
	// Complete sets the fields of a configuration that are zero to their
	// defaults. It fails with a *device.ConfigError that names a field.
	Complete func(C) (C, error)
}

// A Key sets a field. A field's first key is the one that it is printed with.
type Key struct {
	Field, Name string // a field of a field is named with a dot in between
	Form
}

// Idle is what programs may say and means nothing.
type Idle struct {
	Name   string // of a key; with * at its end, of all that begin so
	Value  string // the only one that may stand there; "": any
	Beside string // KEY:VALUE that has to be said, too; "": nothing
	Reason string
}

// in returns the key's field of a configuration, given by its address. A field of nil
// is zero.
func (k *Key) in(cfg any) reflect.Value {
	v := reflect.ValueOf(cfg).Elem()
	for name := range strings.SplitSeq(k.Field, ".") {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return reflect.Zero(v.Type().Elem()).FieldByName(name)
			}
			v = v.Elem()
		}
		v = v.FieldByName(name)
	}
	return v
}

// parse sets the key's field. Where the configuration refers to what has the field, it
// refers to a copy then, or to nothing where that is zero.
func (k *Key) parse(cfg any, text string) (ok bool) {
	outer, _, _ := strings.Cut(k.Field, ".")
	at := reflect.ValueOf(cfg).Elem().FieldByName(outer)
	if at.Kind() != reflect.Pointer {
		return k.Parse(k.in(cfg), text)
	}
	own := reflect.New(at.Type().Elem())
	if !at.IsNil() {
		own.Elem().Set(at.Elem())
	}
	at.Set(own)
	ok = k.Parse(k.in(cfg), text)
	if own.Elem().IsZero() {
		at.SetZero()
	}
	return ok
}

func (k *Key) isSet(cfg any) bool    { return !k.in(cfg).IsZero() }
func (k *Key) format(cfg any) string { return k.Format(k.in(cfg)) }

// The sources of settings, beside variables of the environment.
const (
	Default = "default"
	Program = "program"
)

// Setting is a field that is in effect.
type Setting struct {
	Field  string // "": none, the setting means nothing
	Key    string // its first
	Value  string // as Variable may have it
	Source string // Default, Program or a variable of the environment
	Unused string // what the environment says where the program says something else: VARIABLE=value; or why nothing is meant
}

// Environ fills in the fields of cfg that are zero from the environment, but for those whose
// names are in a list, and returns the settings that are then in effect, in the order of the keys, and
// behind them those that mean nothing. A variable that is empty counts as not set.
func (t *Table[C]) Environ(cfg C, zeros ...string) (merged C, list []Setting, err error) {
	var none C
	all, err := t.read(t.Variable, os.Getenv(t.Variable))
	if err != nil {
		return none, nil, err
	}
	for i := range t.Keys {
		k := &t.Keys[i]
		if v := os.Getenv(t.variable(k)); v != "" && k == t.first(k.Field) {
			all = append(all, given{k, strings.TrimSpace(v), t.variable(k)})
		}
	}
	all, idle := t.part(all)
	env, err := t.configOf(all)
	if err != nil {
		return none, nil, err
	}
	merged, list = t.merge(cfg, env, all, zeros)
	effective, err := t.Complete(merged)
	if err != nil {
		return none, nil, t.blame(err, all)
	}
	for i, s := range list {
		list[i].Value = t.key(s.Key).format(&effective)
	}
	return merged, append(list, idle...), nil
}

// Parse reads a list of keys and values and returns a configuration with these
// fields, the names of those that are set to zero, and what means nothing.
func (t *Table[C]) Parse(conf string) (cfg C, zeros []string, idle []Setting, err error) {
	var none C
	all, err := t.read("", conf)
	if err != nil {
		return none, nil, nil, err
	}
	all, idle = t.part(all)
	if cfg, err = t.configOf(all); err != nil {
		return none, nil, nil, err
	}
	if _, err := t.Complete(cfg); err != nil {
		return none, nil, nil, t.blame(err, all)
	}
	for _, g := range all {
		if !g.isSet(&cfg) {
			zeros = append(zeros, g.Field)
		}
	}
	return cfg, zeros, idle, nil
}

// Change returns cfg with what conf names. may has the fields that can be named, and whether
// they change; the others can only be named as they are.
func (t *Table[C]) Change(cfg C, conf string, may map[string]bool) (C, error) {
	var none C
	all, err := t.read("", conf)
	if err != nil {
		return none, err
	}
	all, _ = t.part(all)
	asked, err := t.configOf(all)
	if err != nil {
		return none, err
	}
	for _, g := range all {
		k := t.first(g.Field)
		switch changes, ok := may[g.Field]; {
		case changes:
			k.parse(&cfg, k.format(&asked))
		case !ok && k.format(&asked) != k.format(&cfg):
			return none, g.fail("cannot change while the allocator is open, where it is " + k.format(&cfg))
		}
	}
	if cfg, err = t.Complete(cfg); err != nil {
		return none, t.blame(err, all)
	}
	return cfg, nil
}

// Now returns the settings of a configuration that is in effect, in the order of the keys.
// One that is as in the list known, of Environ or of before, is from where that says. Of the
// others, those that are as Complete has them are the defaults, and the rest is the program's.
func (t *Table[C]) Now(cfg *C, known []Setting) (list []Setting) {
	var none C
	defaults, _ := t.Complete(none) // nothing is wrong in it
	for i := range t.Keys {
		k := &t.Keys[i]
		if k != t.first(k.Field) {
			continue
		}
		s := Setting{Field: k.Field, Key: k.Name, Value: k.format(cfg), Source: Program}
		at := slices.IndexFunc(known, func(x Setting) bool { return x.Field == s.Field && x.Value == s.Value })
		switch {
		case at >= 0:
			s = known[at]
		case s.Value == k.format(&defaults):
			s.Source = Default
		}
		list = append(list, s)
	}
	return list
}

// variable returns the variable of the environment that sets a key alone, if it is its
// field's first.
func (t *Table[C]) variable(k *Key) string { return t.Prefix + strings.ToUpper(k.Name) }

// Unknown returns the variables of an environment whose names begin with the table's prefix
// and that nobody knows, each with the nearest one that is known, or "".
func (t *Table[C]) Unknown(environ []string) (names, nearest []string) {
	known := []string{t.Variable}
	for i := range t.Keys {
		if k := &t.Keys[i]; k == t.first(k.Field) {
			known = append(known, t.variable(k))
		}
	}
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		others := func(beginning string) bool { return strings.HasPrefix(name, t.Prefix+beginning) }
		if value != "" && strings.HasPrefix(name, t.Prefix) && !slices.Contains(known, name) && !slices.ContainsFunc(t.Others, others) {
			names, nearest = append(names, name), append(nearest, near(name, known))
		}
	}
	return names, nearest
}

// idle returns what says that a key of a name means nothing, or nil.
func (t *Table[C]) idle(name string) *Idle {
	i := slices.IndexFunc(t.Idle, func(x Idle) bool {
		beginning, all := strings.CutSuffix(x.Name, "*")
		return name == x.Name || all && strings.HasPrefix(name, beginning)
	})
	if i < 0 {
		return nil
	}
	return &t.Idle[i]
}

// part parts what was given from what means nothing.
func (t *Table[C]) part(said []given) (all []given, idle []Setting) {
	for _, g := range said {
		x := t.idle(g.Name)
		if x == nil || x.Beside != "" && !slices.ContainsFunc(said, func(o given) bool { return o.Name+":"+o.value == x.Beside }) {
			all = append(all, g)
			continue
		}
		idle = append(idle, Setting{Key: g.Name, Value: g.value, Source: cmp.Or(g.from, Program), Unused: x.Reason})
	}
	return all, idle
}

// given is a value that was given for a key.
type given struct {
	*Key
	value string
	from  string // a variable of the environment; "" for none
}

// where says where it was given, for errors.
func (g given) where() string {
	if g.from == "" {
		return g.Name
	}
	return g.Name + " in " + g.from
}

func (g given) fail(reason string) error {
	return &device.ConfigError{Field: g.where(), Value: g.value, Reason: reason}
}

// short returns a value that was read as it is printed, 200 characters of it at most.
func (t *Table[C]) short(g given) string {
	var one C
	g.parse(&one, g.value)
	return fmt.Sprintf("%.200s", t.first(g.Field).format(&one))
}

// key returns the key of a name, or nil.
func (t *Table[C]) key(name string) *Key {
	if i := slices.IndexFunc(t.Keys, func(k Key) bool { return k.Name == name }); i >= 0 {
		return &t.Keys[i]
	}
	return nil
}

// first returns a field's first key.
func (t *Table[C]) first(field string) *Key {
	return &t.Keys[slices.IndexFunc(t.Keys, func(k Key) bool { return k.Field == field })]
}

// names lists the keys for errors.
func (t *Table[C]) names() (names []string) {
	for _, k := range t.Keys {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

// read takes a list of keys and values apart, which came from a variable of the
// environment, or from none.
func (t *Table[C]) read(variable, conf string) (all []given, err error) {
	conf = strings.Join(strings.Fields(conf), "")
	if conf == "" {
		return nil, nil
	}
	for _, item := range split(conf) {
		name, value, ok := strings.Cut(item, ":")
		k, x := t.key(name), t.idle(name)
		switch {
		case !ok:
			return nil, &device.ConfigError{Field: cmp.Or(variable, "settings"), Value: item, Reason: "must be KEY:VALUE"}
		case k == nil && x == nil:
			return nil, &device.ConfigError{Field: cmp.Or(variable, "settings"), Value: name, Reason: t.unknown(name)}
		case k == nil:
			k = &Key{Name: name}
			if x.Value != "" && value != x.Value {
				return nil, given{k, value, variable}.fail("must be " + x.Value + ": " + x.Reason)
			}
		}
		all = append(all, given{k, value, variable})
	}
	return all, nil
}

// unknown says that no key has a name.
func (t *Table[C]) unknown(name string) string {
	if n := near(name, t.names()); n != "" {
		return "is no key; the nearest is " + n
	}
	return "is no key; the keys are " + strings.Join(t.names(), ", ")
}

// near returns the name that a word becomes with the fewest letters changed, put in, taken
// out or swapped with the next, or "" where that takes more than a third of them.
func near(word string, names []string) (best string) {
	word = word[:min(len(word), 100)]
	most := len(word)/3 + 1
	for _, name := range names {
		if n := distance(word, name); n < most {
			best, most = name, n
		}
	}
	return best
}

// distance is how many letters of a word are to be changed, put in, taken out or swapped with
// the next to make it another one (Damerau, 1964).
func distance(a, b string) int {
	// Rows are of the first letters of a, to the first of b. Three are enough, however long a is.
	row, last, before := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for i := range len(a) + 1 {
		row, last, before = before, row, last
		for j := range row {
			switch {
			case i == 0 || j == 0:
				row[j] = i + j
				continue
			case a[i-1] == b[j-1]:
				row[j] = last[j-1]
				continue
			}
			row[j] = 1 + min(last[j-1], last[j], row[j-1])
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], 1+before[j-2])
			}
		}
	}
	return row[len(b)]
}

// split cuts at commas that are not in brackets.
func split(conf string) (items []string) {
	depth, from := 0, 0
	for i, r := range conf {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case r == ',' && depth <= 0:
			items = append(items, conf[from:i])
			from = i + 1
		}
	}
	return append(items, conf[from:])
}

// configOf returns a configuration with all that was given.
func (t *Table[C]) configOf(all []given) (cfg C, err error) {
	before := map[string]given{} // by field, the first
	var none, one C
	for _, g := range all {
		one = none
		if !g.parse(&one, g.value) {
			return cfg, g.fail("must be " + g.Allowed)
		}
		if o, ok := before[g.Field]; !ok {
			before[g.Field] = g
		} else if first := t.first(g.Field); first.format(&cfg) != first.format(&one) {
			return cfg, g.fail(fmt.Sprintf("contradicts %s = %s", o.where(), t.short(o)))
		}
		g.parse(&cfg, g.value)
	}
	return cfg, nil
}

// merge fills in the zero fields of a configuration, but for those in a list, from another one,
// which was given, and says for every field where it came from.
func (t *Table[C]) merge(cfg, env C, all []given, zeros []string) (C, []Setting) {
	var list []Setting
	for i := range t.Keys {
		k := &t.Keys[i]
		if k != t.first(k.Field) {
			continue
		}
		s := Setting{Field: k.Field, Key: k.Name, Source: Default}
		at := slices.IndexFunc(all, func(g given) bool { return g.Field == k.Field })
		switch {
		case k.isSet(&cfg), at >= 0 && slices.Contains(zeros, k.Field):
			s.Source = Program
			if at >= 0 && k.format(&cfg) != k.format(&env) {
				s.Unused = all[at].from + "=" + all[at].value
			}
		case at >= 0:
			s.Source = all[at].from
			k.parse(&cfg, k.format(&env))
		}
		list = append(list, s)
	}
	return cfg, list
}

// blame makes an error name the key that set the field, or else the one that set another field of
// which the reason speaks.
func (t *Table[C]) blame(err error, all []given) error {
	var bad *device.ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	for _, g := range all {
		if g.Field == bad.Field {
			return g.fail(t.inKeys(bad.Reason))
		}
	}
	for _, g := range all {
		if slices.Contains(word.FindAllString(bad.Reason, -1), g.Field) {
			reason := fmt.Sprintf("%s; %s is %s", t.inKeys(bad.Reason), g.where(), t.short(g))
			return &device.ConfigError{Field: t.inKeys(bad.Field), Value: bad.Value, Reason: reason}
		}
	}
	return err
}

// word is what may be the name of a field.
var word = regexp.MustCompile(`\b[A-Z][A-Za-z]*(\.[A-Z][A-Za-z]*)*`)

// inKeys puts the names of keys for those of fields. What 0 means to a field is
// left out: leaving a key out means the same.
func (t *Table[C]) inKeys(reason string) string {
	reason, _, _ = strings.Cut(reason, "; 0 means")
	return word.ReplaceAllStringFunc(reason, func(name string) string {
		if slices.ContainsFunc(t.Keys, func(k Key) bool { return k.Field == name }) {
			return t.first(name).Name
		}
		return name
	})
}
