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
// A nested deployment is a resource with Deployment set; [Plan.Nested] makes its
// plan. A resource of an import has an id before it is made
// ([Plan.ExtensionID]). A preview uses Known, KnownBody, KnownOutputs and
// [Options].Partial.
//
// # Guarantees
//
//   - Deterministic: the same text, options and runtime give the same plan.
//   - Bounded: sizes, counts, nesting and work have limits ([Limits]); a
//     template that passes one is refused with an error that names it.
//   - Every error is a [core.Error] of code InvalidTemplate (or
//     RecipeValidationFailed for a wrong parameter value) whose Target is the
//     JSON path and whose text gives line and column.
//   - No error holds what a secure parameter holds: where an expression uses
//     one, its values are left out of the message, and every message is
//     searched for the values of secure parameters before it leaves.
//
// docs/template-language.md lists what is understood.
package template
