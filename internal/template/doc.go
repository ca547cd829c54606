// Package template evaluates ARM JSON templates. It is pure: text and values
// go in, a [Plan] of resources and, once they are made, the values of outputs
// come out. It reads no file, no clock and no network, and starts nothing; the
// time, new GUIDs and the live state of resources come in through [Options]
// and [Runtime].
//
// A template goes through three steps:
//
//	t, err := template.Parse(text)       // syntax, names of functions, shape
//	p, err := t.Plan(options)            // parameters, conditions, loops, graph
//	props, err := p.Properties(r, rt)    // the body of one resource, when what
//	                                     // it depends on has been made
//	outs, err := p.Outputs(rt)           // after the last
//
// # Guarantees
//
//   - Deterministic: the same text, options and runtime give the same plan.
//   - Bounded: sizes, counts, nesting and work have limits ([Limits]); a
//     template that passes one is refused with an error that names it.
//   - Every error is a [core.Error] of code InvalidTemplate (or
//     RecipeValidationFailed for a wrong parameter value) whose Target is the
//     JSON path and whose text gives line and column.
//   - No error quotes a value that was computed or passed in, so secure values
//     appear in none.
//
// docs/template-language.md lists what is understood.
package template
