package cupool

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Configuration from the environment, for programs that want it: New reads
// none, so that a library's behaviour does not depend on where it runs.

// AllocConf is the variable of the environment with settings in PyTorch's
// syntax: "KEY:VALUE,KEY:VALUE,...". Blanks are ignored. Keys that PyTorch has
// too mean the same: max_split_size_mb, max_non_split_rounding_mb,
// large_segment_size_mb, roundup_power2_divisions,
// garbage_collection_threshold, per_process_memory_fraction,
// expandable_segments (True is BackingVMM, False BackingSegments). The others
// are fields of Config with sizes such as 512MiB. CUPOOL_MAX_SIZE,
// CUPOOL_INITIAL_SIZE and CUPOOL_GROWTH_FACTOR say the same as the keys
// max_size, initial_size and growth_factor.
const AllocConf = "CUPOOL_ALLOC_CONF"

// ConfigFromEnv fills in the fields of cfg that are zero from the variables of
// the environment, AllocConf and the others. What the program has set stays:
// what it takes from its own flags comes before the environment. It also
// returns every setting in effect and where it came from, in a fixed order. A
// variable that is empty counts as not set.
//
// It fails with a *ConfigError that names the key and what is allowed: for an
// unknown key, for a value that is not allowed, also together with others, and
// for two values for the same field.
func ConfigFromEnv(cfg Config) (Config, []Setting, error) {
	all, err := readConf(AllocConf, os.Getenv(AllocConf))
	if err != nil {
		return Config{}, nil, err
	}
	for i, s := range settings {
		if s.variable == "" {
			continue
		}
		if v := os.Getenv(s.variable); v != "" {
			all = append(all, given{&settings[i], strings.TrimSpace(v), s.variable})
		}
	}
	env, err := configOf(all)
	if err != nil {
		return Config{}, nil, err
	}
	merged, list := merge(cfg, env, all)
	effective, err := merged.withDefaults()
	if err != nil {
		return Config{}, nil, blame(err, all)
	}
	for i, s := range list {
		list[i].Value = settingOf(s.Key).format(&effective)
	}
	return merged, list, nil
}

// ParseAllocConf reads what AllocConf may hold, for programs that take it from
// a flag, and returns a Config with these fields. It fails as ConfigFromEnv
// does.
func ParseAllocConf(conf string) (Config, error) {
	all, err := readConf("", conf)
	if err != nil {
		return Config{}, err
	}
	cfg, err := configOf(all)
	if err != nil {
		return Config{}, err
	}
	if _, err := cfg.withDefaults(); err != nil {
		return Config{}, blame(err, all)
	}
	return cfg, nil
}

// given is a value that was given for a setting.
type given struct {
	*setting
	value    string
	variable string // of the environment; "" for none
}

// where says where it was given, for errors.
func (g given) where() string {
	if g.variable == "" {
		return g.key
	}
	return g.key + " in " + g.variable
}

func (g given) fail(reason string) error {
	return &ConfigError{Field: g.where(), Value: g.value, Reason: reason}
}

// readConf takes a list of settings apart.
func readConf(variable, conf string) (all []given, err error) {
	conf = strings.Join(strings.Fields(conf), "")
	if conf == "" {
		return nil, nil
	}
	for _, item := range splitConf(conf) {
		key, value, ok := strings.Cut(item, ":")
		s := settingOf(key)
		switch {
		case !ok:
			return nil, &ConfigError{Field: cmp.Or(variable, AllocConf), Value: item, Reason: "must be KEY:VALUE"}
		case s == nil:
			return nil, &ConfigError{Field: cmp.Or(variable, AllocConf), Value: key, Reason: "is no key; the keys are " + keysText()}
		}
		all = append(all, given{s, value, variable})
	}
	return all, nil
}

// splitConf cuts at commas that are not in brackets.
func splitConf(conf string) (items []string) {
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

// configOf returns a Config with all that was given.
func configOf(all []given) (cfg Config, err error) {
	for i, g := range all {
		one := Config{}
		if !g.parse(&one, g.value) {
			return cfg, g.fail("must be " + g.allowed)
		}
		for _, o := range all[:i] {
			if first := settingOfField(g.field); o.field == g.field && first.format(&cfg) != first.format(&one) {
				return cfg, g.fail(fmt.Sprintf("contradicts %s = %s", o.where(), o.value))
			}
		}
		g.parse(&cfg, g.value)
	}
	return cfg, nil
}

// settingOfField returns a field's first setting.
func settingOfField(field string) *setting {
	return &settings[slices.IndexFunc(settings, func(s setting) bool { return s.field == field })]
}

// merge fills in the zero fields of a Config from another, which was given,
// and says for every field where it came from.
func merge(cfg, env Config, all []given) (Config, []Setting) {
	var list []Setting
	for i := range settings {
		s := &settings[i]
		if s != settingOfField(s.field) {
			continue
		}
		now := Setting{Field: s.field, Key: s.key, Source: SourceDefault}
		at := slices.IndexFunc(all, func(g given) bool { return g.field == s.field })
		switch {
		case s.isSet(&cfg):
			now.Source = SourceProgram
			if at >= 0 && s.format(&cfg) != s.format(&env) {
				now.Unused = all[at].variable + "=" + all[at].value
			}
		case at >= 0:
			now.Source = all[at].variable
			s.parse(&cfg, s.format(&env))
		}
		list = append(list, now)
	}
	return cfg, list
}

// blame makes an error name the keys that set the field.
func blame(err error, all []given) error {
	var bad *ConfigError
	if !errors.As(err, &bad) {
		return err
	}
	for _, g := range all {
		if g.field == bad.Field {
			return g.fail(inKeys(bad.Reason))
		}
	}
	return err
}

// inKeys returns what is wrong with a Config as who wrote keys understands it.
// What 0 means to a Config is left out: to leave a key out means the same.
func inKeys(reason string) string {
	reason, _, _ = strings.Cut(reason, "; 0 means")
	return fieldNames.ReplaceAllStringFunc(reason, func(field string) string { return settingOfField(field).key })
}

var fieldNames = regexp.MustCompile(`\b(` + strings.Join(fields(), "|") + `)\b`)

// fields lists the fields that settings set.
func fields() (names []string) {
	for _, s := range settings {
		names = append(names, s.field)
	}
	return names
}
