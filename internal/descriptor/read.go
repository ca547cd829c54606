package descriptor

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/cloud"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/schema"
)

// OwnStorePrefix starts the variables by which a service names an object store
// of its own.
const OwnStorePrefix = "ANKKA_S3_"

var (
	variable = regexp.MustCompile(`^[-._a-zA-Z][-._a-zA-Z0-9]*$`)
	entry    = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)
	cpu      = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?m?$`)
	memory   = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?([kMGT]|[KMGT]i)?$`)
	database = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	labelKey = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelVal = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// reader collects problems. What it says of a value never repeats one: it may
// be a secret that stands in the wrong place.
type reader struct{ problems []core.Error }

func (r *reader) fault(at, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if at != "" {
		text = at + ": " + text
	}
	r.problems = append(r.problems, core.Error{Code: core.CodeInvalidContent, Message: text, Target: at})
}

func (r *reader) check(at string, err error) {
	if err != nil {
		r.fault(at, "%s", err)
	}
}

// err is nil, or an error that says all problems.
func (r *reader) err(what string) error {
	switch len(r.problems) {
	case 0:
		return nil
	case 1:
		return core.Errorf(core.CodeInvalidContent, "%s is not taken: %s", what, r.problems[0].Message).WithTarget(r.problems[0].Target).WithDetails(r.problems...)
	}
	texts := make([]string, len(r.problems))
	for i, p := range r.problems {
		texts[i] = p.Message
	}
	return core.Errorf(core.CodeInvalidContent, "%s is not taken, for %d reasons: %s", what, len(texts), strings.Join(texts, "; ")).WithDetails(r.problems...)
}

func below(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// object reads each member by its function, in the order of their names; unknown
// ones and those of needed that are missing are problems. null is absent.
func (r *reader) object(at string, v any, members map[string]func(at string, v any), needed ...string) {
	o, ok := v.(map[string]any)
	if !ok {
		r.fault(at, "must be an object")
		return
	}
	known := slices.Sorted(maps.Keys(members))
	for _, name := range slices.Sorted(maps.Keys(o)) {
		read, ok := members[name]
		switch {
		case !ok:
			hint := "there are " + strings.Join(known, ", ")
			if near := schema.Nearest(name, known); len(near) > 0 {
				hint = "did you mean " + strings.Join(near, " or ") + "?"
			}
			r.fault(below(at, shortened(name)), "is not known; %s", hint)
		case o[name] != nil:
			read(below(at, name), o[name])
		}
	}
	for _, name := range needed {
		if o[name] == nil {
			r.fault(below(at, name), "is required")
		}
	}
}

func shortened(name string) string {
	name = v1alpha1.Clean(name)
	if r := []rune(name); len(r) > 60 {
		return string(r[:60]) + "…"
	}
	return name
}

func (r *reader) text(at string, v any, most int) string {
	s, ok := v.(string)
	switch {
	case !ok:
		r.fault(at, "must be a string%s", quoteHint(v))
	case s == "":
		r.fault(at, "is empty")
	case len(s) > most:
		r.fault(at, "has %d characters, and at most %d are taken", len(s), most)
		return ""
	}
	return s
}

// quoteHint helps with YAML's numbers and booleans.
func quoteHint(v any) string {
	switch v.(type) {
	case json.Number, bool, float64, int64:
		return " (write it in quotes)"
	}
	return ""
}

func (r *reader) flag(at string, v any) bool {
	b, ok := v.(bool)
	if !ok {
		r.fault(at, "must be true or false")
	}
	return b
}

func (r *reader) number(at string, v any, least, most int64) int64 {
	var n int64
	var err error
	switch v := v.(type) {
	case json.Number:
		n, err = v.Int64()
	case int64:
		n = v
	case float64:
		if n = int64(v); float64(n) != v {
			err = fmt.Errorf("fraction")
		}
	default:
		r.fault(at, "must be a whole number")
		return 0
	}
	if err != nil || n < least || n > most {
		r.fault(at, "must be a whole number from %d to %d", least, most)
		return 0
	}
	return n
}

func (r *reader) list(at string, v any, most int, each func(at string, v any)) {
	l, ok := v.([]any)
	switch {
	case !ok:
		r.fault(at, "must be a list")
		return
	case len(l) > most:
		r.fault(at, "has %d items, and at most %d are taken", len(l), most)
		return
	}
	for i, e := range l {
		each(fmt.Sprintf("%s[%d]", at, i), e)
	}
}

func (r *reader) strings(at string, v any, each func(at, key, value string)) map[string]string {
	o, ok := v.(map[string]any)
	if !ok {
		r.fault(at, "must be an object of strings")
		return nil
	}
	if len(o) > 64 {
		r.fault(at, "has %d members, and at most 64 are taken", len(o))
		return nil
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		s, ok := o[name].(string)
		if !ok {
			r.fault(below(at, shortened(name)), "must be a string%s", quoteHint(o[name]))
			continue
		}
		each(below(at, shortened(name)), name, s)
		out[name] = s
	}
	return out
}

func (r *reader) service(at string, v any) Service {
	var s Service
	members := map[string]func(string, any){
		"image": func(at string, v any) {
			if s.Image = r.text(at, v, 1024); strings.ContainsFunc(s.Image, func(c rune) bool { return c <= ' ' || c > '~' }) {
				r.fault(at, "is no reference to an image: it holds white space or other characters that none has")
			}
		},
		"env": func(at string, v any) {
			r.list(at, v, 512, func(at string, v any) { s.Env = append(s.Env, r.variable(at, v)) })
		},
		"labels": func(at string, v any) {
			s.Labels = r.strings(at, v, func(at, key, value string) {
				r.ownKey(at, key)
				if !labelVal.MatchString(value) {
					r.fault(at, "is no label's value: at most 63 letters, digits, hyphens, underscores and dots, with a letter or digit at each end")
				}
			})
		},
		"annotations": func(at string, v any) {
			s.Annotations = r.strings(at, v, func(at, key, value string) {
				r.ownKey(at, key)
				if len(value) > 65536 {
					r.fault(at, "has %d characters, and at most 65536 are taken", len(value))
				}
			})
		},
		"http":                    func(at string, v any) { s.HTTP = r.flag(at, v) },
		"port":                    func(at string, v any) { n := int32(r.number(at, v, 1, 65535)); s.Port = &n },
		"provisionObjectStorage":  func(at string, v any) { s.ProvisionObjectStorage = r.flag(at, v) },
		"exposeObjectStorage":     func(at string, v any) { s.ExposeObjectStorage = r.flag(at, v) },
		"objectStorageVersioning": func(at string, v any) { s.ObjectStorageVersioning = r.flag(at, v) },
		"database": func(at string, v any) {
			if s.Database = r.text(at, v, 63); s.Database != "" && !database.MatchString(s.Database) {
				r.fault(at, "must be lower-case letters, digits and hyphens")
			}
		},
		"objectStorageOrigins": func(at string, v any) {
			r.list(at, v, 64, func(at string, v any) {
				o := r.text(at, v, 512)
				if o != "" {
					r.check(at, v1alpha1.ValidateOrigin(o))
				}
				if slices.Contains(s.ObjectStorageOrigins, o) {
					r.fault(at, "stands twice")
				}
				s.ObjectStorageOrigins = append(s.ObjectStorageOrigins, o)
			})
		},
		"objectStorageSoftDeleteDays": func(at string, v any) { s.ObjectStorageSoftDeleteDays = r.number(at, v, 0, 36500) },
		"objectStorageVersionAgeDays": func(at string, v any) { n := r.number(at, v, 1, 36500); s.ObjectStorageVersionAgeDays = &n },
		"resources":                   func(at string, v any) { s.Resources = r.resources(at, v) },
	}
	r.object(at, v, members, "image")
	r.together(at, &s)
	return s
}

// ownKey refuses keys by which the platform tells its objects apart.
func (r *reader) ownKey(at, key string) {
	switch prefix, _, _ := strings.Cut(key, "/"); {
	case !labelKey.MatchString(key):
		r.fault(at, "is no key of a label or annotation")
	case prefix == v1alpha1.Group || key == v1alpha1.LabelManagedBy || key == v1alpha1.LabelName:
		r.fault(at, "is set by the platform and cannot be declared")
	}
}

func (r *reader) variable(at string, v any) Variable {
	var e Variable
	valued := false
	r.object(at, v, map[string]func(string, any){
		"name": func(at string, v any) {
			e.Name = r.text(at, v, 256)
			switch {
			case e.Name == "":
			case !variable.MatchString(e.Name):
				r.fault(at, "is no name of a variable: letters, digits, hyphens, underscores and dots, and no digit first")
			default:
				r.check(at, cloud.CheckVariable(e.Name))
			}
		},
		"value": func(at string, v any) {
			s, ok := v.(string)
			valued = true
			switch e.Value = s; {
			case !ok:
				r.fault(at, "must be a string%s", quoteHint(v))
			case len(s) > 65536:
				r.fault(at, "has %d characters, and at most 65536 are taken", len(s))
			}
		},
		"secretKeyRef": func(at string, v any) {
			ref := &SecretKeyRef{}
			r.object(at, v, map[string]func(string, any){
				"name": func(at string, v any) {
					if ref.Name = r.text(at, v, 63); ref.Name == "" {
						return
					}
					if err := cloud.CheckSecretReference(ref.Name); err != nil {
						r.check(at, err)
						return
					}
					r.check(at, v1alpha1.ValidateName("secret", ref.Name))
				},
				"key": func(at string, v any) {
					if ref.Key = r.text(at, v, 253); ref.Key != "" && !entry.MatchString(ref.Key) {
						r.fault(at, "is no entry's name: letters, digits, hyphens, underscores and dots")
					}
				},
			}, "name", "key")
			e.SecretKeyRef = ref
		},
	}, "name")
	if valued && e.SecretKeyRef != nil {
		r.fault(at, "has a value and a secretKeyRef; it takes one of them")
	}
	return e
}

func (r *reader) resources(at string, v any) *Resources {
	out := &Resources{}
	r.object(at, v, map[string]func(string, any){
		"cpu": func(at string, v any) {
			if out.CPU = r.text(at, v, 32); out.CPU != "" && !cpu.MatchString(out.CPU) {
				r.fault(at, "is no amount of CPU, such as \"500m\" or \"2\"")
			}
		},
		"memory": func(at string, v any) {
			if out.Memory = r.text(at, v, 32); out.Memory != "" && !memory.MatchString(out.Memory) {
				r.fault(at, "is no amount of memory, such as \"256Mi\"")
			}
		},
		"autoscaling": func(at string, v any) {
			a := &v1alpha1.Autoscaling{}
			r.object(at, v, map[string]func(string, any){
				"minInstances": func(at string, v any) { n := int32(r.number(at, v, 1, 10000)); a.MinInstances = &n },
				"maxInstances": func(at string, v any) { n := int32(r.number(at, v, 1, 10000)); a.MaxInstances = &n },
			})
			least := int32(1)
			if a.MinInstances != nil {
				least = *a.MinInstances
			}
			if a.MaxInstances != nil && *a.MaxInstances != 0 && *a.MaxInstances < least {
				r.fault(at, "maxInstances is %d, and minInstances %d", *a.MaxInstances, least)
			}
			out.Autoscaling = a
		},
	})
	return out
}

// together are the problems that no member has alone.
func (r *reader) together(at string, s *Service) {
	seen := map[string]bool{}
	for i, e := range s.Env {
		at := fmt.Sprintf("%s[%d]", below(at, "env"), i)
		if e.Name == "" {
			continue
		}
		if seen[e.Name] {
			r.fault(below(at, "name"), "env var '%s' stands twice", shortened(e.Name))
		}
		seen[e.Name] = true
		if s.ProvisionObjectStorage && strings.HasPrefix(e.Name, OwnStorePrefix) {
			r.fault(below(at, "name"), "env var '%s' names an object store of the service's own, and provisionObjectStorage asks for the platform's; take one away", shortened(e.Name))
		}
	}
	asks := func(name string, asked bool) {
		if asked && !s.ProvisionObjectStorage {
			r.fault(below(at, name), "needs provisionObjectStorage")
		}
	}
	asks("exposeObjectStorage", s.ExposeObjectStorage)
	asks("objectStorageOrigins", len(s.ObjectStorageOrigins) > 0)
	asks("objectStorageVersioning", s.ObjectStorageVersioning)
	asks("objectStorageSoftDeleteDays", s.ObjectStorageSoftDeleteDays > 0)
	asks("objectStorageVersionAgeDays", s.ObjectStorageVersionAgeDays != nil)
}
