// Package confenv reads a configuration from variables of the environment, in
// the syntax of PyTorch's allocator: "KEY:VALUE,KEY:VALUE,...".
//
// A Table has the keys. Several may set the same field, if they agree. A field
// that the program has set stays, and the errors name keys, not fields.
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
	Keys     []Key
	// Complete sets the fields of a configuration that are zero to their
	// defaults. It fails with a *device.ConfigError that names a field.
	Complete func(C) (C, error)
}

// A Key sets a field. A field's first key is the one that it is printed with.
type Key struct {
	Field, Name string // a field of a field is named with a dot in between
	Form
	Variable string // of the environment that sets this key alone; "": none
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
	Field  string
	Key    string // its first
	Value  string // as Variable may have it
	Source string // Default, Program or a variable of the environment
	Unused string // what the environment says where the program says something else: VARIABLE=value
}

// Environ fills in the fields of cfg that are zero from the environment, and
// returns the settings that are then in effect, in the order of the keys. A
// variable that is empty counts as not set.
func (t *Table[C]) Environ(cfg C) (merged C, list []Setting, err error) {
	var none C
	all, err := t.read(t.Variable, os.Getenv(t.Variable))
	if err != nil {
		return none, nil, err
	}
	for i := range t.Keys {
		k := &t.Keys[i]
		if k.Variable == "" {
			continue
		}
		if v := os.Getenv(k.Variable); v != "" {
			all = append(all, given{k, strings.TrimSpace(v), k.Variable})
		}
	}
	env, err := t.configOf(all)
	if err != nil {
		return none, nil, err
	}
	merged, list = t.merge(cfg, env, all)
	effective, err := t.Complete(merged)
	if err != nil {
		return none, nil, t.blame(err, all)
	}
	for i, s := range list {
		list[i].Value = t.key(s.Key).format(&effective)
	}
	return merged, list, nil
}

// Parse reads a list of keys and values and returns a configuration with these
// fields.
func (t *Table[C]) Parse(conf string) (C, error) {
	var none C
	all, err := t.read("", conf)
	if err != nil {
		return none, err
	}
	cfg, err := t.configOf(all)
	if err != nil {
		return none, err
	}
	if _, err := t.Complete(cfg); err != nil {
		return none, t.blame(err, all)
	}
	return cfg, nil
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
func (t *Table[C]) names() string {
	var names []string
	for _, k := range t.Keys {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
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
		k := t.key(name)
		switch {
		case !ok:
			return nil, &device.ConfigError{Field: cmp.Or(variable, t.Variable), Value: item, Reason: "must be KEY:VALUE"}
		case k == nil:
			return nil, &device.ConfigError{Field: cmp.Or(variable, t.Variable), Value: name, Reason: "is no key; the keys are " + t.names()}
		}
		all = append(all, given{k, value, variable})
	}
	return all, nil
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
			return cfg, g.fail(fmt.Sprintf("contradicts %s = %s", o.where(), o.value))
		}
		g.parse(&cfg, g.value)
	}
	return cfg, nil
}

// merge fills in the zero fields of a configuration from another one, which was
// given, and says for every field where it came from.
func (t *Table[C]) merge(cfg, env C, all []given) (C, []Setting) {
	var list []Setting
	for i := range t.Keys {
		k := &t.Keys[i]
		if k != t.first(k.Field) {
			continue
		}
		s := Setting{Field: k.Field, Key: k.Name, Source: Default}
		at := slices.IndexFunc(all, func(g given) bool { return g.Field == k.Field })
		switch {
		case k.isSet(&cfg):
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

// blame makes an error name the key that set the field.
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
	return err
}

// inKeys puts the names of keys for those of fields. What 0 means to a field is
// left out: leaving a key out means the same.
func (t *Table[C]) inKeys(reason string) string {
	reason, _, _ = strings.Cut(reason, "; 0 means")
	var fields []string
	for i := range t.Keys {
		if k := &t.Keys[i]; k == t.first(k.Field) {
			fields = append(fields, k.Field)
		}
	}
	names := regexp.MustCompile(`\b(` + strings.Join(fields, "|") + `)\b`)
	return names.ReplaceAllStringFunc(reason, func(field string) string { return t.first(field).Name })
}
