package template

import (
	"sort"
	"strings"
	"unicode/utf8"
)

// maxRange is the largest array that range makes.
const maxRange = 10_000

func collectionFunctions() []function {
	return []function{
		{name: "array", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			if a, ok := args[0].([]any); ok {
				return a, nil
			}
			return []any{args[0]}, nil
		}},
		{name: "createArray", max: -1, eval: func(_ *evaluator, args []any) (any, error) { return args, nil }},
		{name: "createObject", max: -1, eval: func(_ *evaluator, args []any) (any, error) {
			if len(args)%2 != 0 {
				return nil, failf("names and values must come in pairs, here are %d arguments", len(args))
			}
			o := NewObject()
			for i := 0; i < len(args); i += 2 {
				k, err := argString(args, i)
				if err != nil {
					return nil, err
				}
				o.Set(k, args[i+1])
			}
			return o, nil
		}},
		{name: "length", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			switch v := args[0].(type) {
			case string:
				return int64(utf8.RuneCountInString(v)), nil
			case []any:
				return int64(len(v)), nil
			case *Object:
				return int64(v.Len()), nil
			}
			return nil, wrongType(args, 0, "a string, an array or an object")
		}},
		{name: "empty", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			switch v := args[0].(type) {
			case nil:
				return true, nil
			case string:
				return v == "", nil
			case []any:
				return len(v) == 0, nil
			case *Object:
				return v.Len() == 0, nil
			}
			return nil, wrongType(args, 0, "a string, an array or an object")
		}},
		{name: "contains", min: 2, max: 2, eval: contains},
		{name: "first", min: 1, max: 1, eval: end(func(n int) int { return 0 })},
		{name: "last", min: 1, max: 1, eval: end(func(n int) int { return n - 1 })},
		{name: "take", min: 2, max: 2, eval: slice(func(n, k int) (int, int) { return 0, k })},
		{name: "skip", min: 2, max: 2, eval: slice(func(n, k int) (int, int) { return k, n })},
		{name: "indexOf", min: 2, max: 2, eval: search(true)},
		{name: "lastIndexOf", min: 2, max: 2, eval: search(false)},
		{name: "indexFromEnd", min: 2, max: 2, eval: func(_ *evaluator, args []any) (any, error) {
			v, ok, err := fromEnd(args)
			if err == nil && !ok {
				err = failf("the index is out of range")
			}
			return v, err
		}},
		{name: "tryIndexFromEnd", min: 2, max: 2, eval: func(_ *evaluator, args []any) (any, error) {
			v, _, err := fromEnd(args)
			return v, err
		}},
		{name: "range", min: 2, max: 2, eval: func(e *evaluator, args []any) (any, error) {
			start, err := argInt(args, 0)
			if err != nil {
				return nil, err
			}
			count, err := argInt(args, 1)
			if err != nil {
				return nil, err
			}
			if count < 0 || count > maxRange {
				return nil, failf("the count must be from 0 to %d", maxRange)
			}
			a := make([]any, count)
			for i := range a {
				a[i] = start + int64(i)
			}
			return a, e.charge(16 * len(a))
		}},
		{name: "flatten", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			lists, err := argArray(args, 0)
			if err != nil {
				return nil, err
			}
			all := []any{}
			for i := range lists {
				a, ok := lists[i].([]any)
				if !ok {
					return nil, failf("item %d must be an array, it is of type %s", i, typeName(lists[i]))
				}
				all = append(all, a...)
			}
			return all, e.charge(16 * len(all))
		}},
		{name: "distinct", min: 1, max: 1, eval: func(e *evaluator, args []any) (any, error) {
			a, err := argArray(args, 0)
			if err != nil {
				return nil, err
			}
			return distinct(e, a)
		}},
		{name: "items", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			o, err := argObject(args, 0)
			if err != nil {
				return nil, err
			}
			list := []any{}
			for _, k := range sortedKeys(o) {
				item := NewObject()
				item.Set("key", k)
				item.Set("value", o.values[k])
				list = append(list, item)
			}
			return list, nil
		}},
		{name: "objectKeys", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			o, err := argObject(args, 0)
			if err != nil {
				return nil, err
			}
			list := []any{}
			for _, k := range sortedKeys(o) {
				list = append(list, k)
			}
			return list, nil
		}},
		{name: "shallowMerge", min: 1, max: 1, eval: func(_ *evaluator, args []any) (any, error) {
			list, err := argArray(args, 0)
			if err != nil {
				return nil, err
			}
			merged := NewObject()
			for i := range list {
				o, err := argObject(list, i)
				if err != nil {
					return nil, err
				}
				for _, k := range o.Keys() {
					merged.Set(k, o.values[k])
				}
			}
			return merged, nil
		}},
		{name: "union", min: 1, max: -1, eval: union},
		{name: "intersection", min: 1, max: -1, eval: intersection},
		{name: "tryGet", min: 2, max: -1, eval: func(_ *evaluator, args []any) (any, error) {
			v := args[0]
			for _, key := range args[1:] {
				if v == nil {
					return nil, nil
				}
				next, err := at(v, key, 0)
				if err != nil {
					return nil, nil
				}
				v = next
			}
			return v, nil
		}},
	}
}

// weight is about how much work comparing or searching a value is: the bytes of
// text, eight for each element. Counting stops at a million.
func weight(v any) int {
	n := 0
	var add func(v any)
	add = func(v any) {
		if n > 1_000_000 {
			return
		}
		switch v := v.(type) {
		case string:
			n += len(v)
		case []any:
			n += 8 * len(v)
			for _, m := range v {
				add(m)
			}
		case *Object:
			n += 16 * len(v.keys)
			for _, m := range v.values {
				add(m)
			}
		}
	}
	add(v)
	return n
}

// sortedKeys orders names without case, and lower case first where only the
// case differs: 123, abc, ABC, def, DEF.
func sortedKeys(o *Object) []string {
	keys := append([]string(nil), o.Keys()...)
	sort.SliceStable(keys, func(i, j int) bool {
		a, b := strings.ToLower(keys[i]), strings.ToLower(keys[j])
		if a != b {
			return a < b
		}
		return keys[i] > keys[j]
	})
	return keys
}

func contains(e *evaluator, args []any) (any, error) {
	if err := e.step(weight(args[0]) / 16); err != nil {
		return nil, err
	}
	switch v := args[0].(type) {
	case string:
		switch args[1].(type) {
		case string, int64:
			return strings.Contains(v, toText(args[1])), nil
		}
		return nil, wrongType(args, 1, "a string")
	case []any:
		for _, m := range v {
			if equal(m, args[1]) {
				return true, nil
			}
		}
		return false, nil
	case *Object:
		k, err := argString(args, 1)
		if err != nil {
			return nil, err
		}
		_, ok := v.Get(k)
		return ok, nil
	}
	return nil, wrongType(args, 0, "a string, an array or an object")
}

func end(pick func(n int) int) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		switch v := args[0].(type) {
		case string:
			r := []rune(v)
			if len(r) == 0 {
				return "", nil
			}
			return string(r[pick(len(r))]), nil
		case []any:
			if len(v) == 0 {
				return nil, nil
			}
			return v[pick(len(v))], nil
		}
		return nil, wrongType(args, 0, "a string or an array")
	}
}

func slice(bounds func(n, k int) (int, int)) func(*evaluator, []any) (any, error) {
	return func(_ *evaluator, args []any) (any, error) {
		k, err := argInt(args, 1)
		if err != nil {
			return nil, err
		}
		cut := func(n int) (int, int) { return bounds(n, int(max(0, min(k, int64(n))))) }
		switch v := args[0].(type) {
		case string:
			r := []rune(v)
			i, j := cut(len(r))
			return string(r[i:j]), nil
		case []any:
			i, j := cut(len(v))
			return v[i:j:j], nil
		}
		return nil, wrongType(args, 0, "a string or an array")
	}
}

// search finds text in text without case, or an equal item in an array.
func search(fromStart bool) func(*evaluator, []any) (any, error) {
	return func(e *evaluator, args []any) (any, error) {
		if err := e.step(weight(args[0]) / 16); err != nil {
			return nil, err
		}
		switch v := args[0].(type) {
		case string:
			s, err := argString(args, 1)
			if err != nil {
				return nil, err
			}
			text, part := strings.ToLower(v), strings.ToLower(s)
			i := strings.LastIndex(text, part)
			if fromStart {
				i = strings.Index(text, part)
			}
			if i < 0 {
				return int64(-1), nil
			}
			return int64(utf8.RuneCountInString(text[:i])), nil
		case []any:
			found := int64(-1)
			for i, e := range v {
				if equal(e, args[1]) {
					found = int64(i)
					if fromStart {
						break
					}
				}
			}
			return found, nil
		}
		return nil, wrongType(args, 0, "a string or an array")
	}
}

// fromEnd counts from the end: 1 is the last item.
func fromEnd(args []any) (any, bool, error) {
	a, err := argArray(args, 0)
	if err != nil {
		return nil, false, err
	}
	i, err := argInt(args, 1)
	if err != nil || i < 1 || i > int64(len(a)) {
		return nil, false, err
	}
	return a[int64(len(a))-i], true, nil
}

func distinct(e *evaluator, a []any) ([]any, error) {
	out := []any{}
next:
	for _, v := range a {
		if err := e.step(1 + len(out)*(1+weight(v)/16)); err != nil {
			return nil, err
		}
		for _, w := range out {
			if equal(v, w) {
				continue next
			}
		}
		out = append(out, v)
	}
	return out, nil
}

// union joins arrays without duplicates, or merges objects at every depth.
func union(e *evaluator, args []any) (any, error) {
	if _, ok := args[0].(*Object); ok {
		merged := NewObject()
		for i := range args {
			o, err := argObject(args, i)
			if err != nil {
				return nil, err
			}
			if err := e.charge(32 * o.Len()); err != nil {
				return nil, err
			}
			merged = merge(merged, o)
		}
		return merged, nil
	}
	var all []any
	for i := range args {
		a, err := argArray(args, i)
		if err != nil {
			return nil, err
		}
		all = append(all, a...)
	}
	return distinct(e, all)
}

func merge(a, b *Object) *Object {
	out := NewObject()
	for _, k := range a.Keys() {
		out.Set(k, a.values[k])
	}
	for _, k := range b.Keys() {
		v := b.values[k]
		if x, ok := out.values[k].(*Object); ok {
			if y, ok := v.(*Object); ok {
				v = merge(x, y)
			}
		}
		out.Set(k, v)
	}
	return out
}

func intersection(e *evaluator, args []any) (any, error) {
	if o, ok := args[0].(*Object); ok {
		out := o
		for i := 1; i < len(args); i++ {
			other, err := argObject(args, i)
			if err != nil {
				return nil, err
			}
			both := NewObject()
			for _, k := range out.Keys() {
				if v, ok := other.values[k]; ok && equal(v, out.values[k]) {
					both.Set(k, v)
				}
			}
			out = both
		}
		return out, nil
	}
	out, err := argArray(args, 0)
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(args); i++ {
		other, err := argArray(args, i)
		if err != nil {
			return nil, err
		}
		both := []any{}
		for _, v := range out {
			if err := e.step(1 + len(other)*(1+weight(v)/16)); err != nil {
				return nil, err
			}
			for _, w := range other {
				if equal(v, w) {
					both = append(both, v)
					break
				}
			}
		}
		out = both
	}
	return distinct(e, out)
}
