// Package stack keeps what one template made together, as one thing: it knows
// what the last update made, deletes or lets go what the next one no longer
// asks for, and takes all of it away at the end (S-26 to S-35, S-51 to S-57).
//
// A stack asks two others and no third: the deployments [Engine], which alone
// reaches clusters, and the [Records], which keep what is known of a stack. So
// the same logic runs in the control plane (package stack/plane) and in a
// command line without one (package stack/local).
//
// # An update
//
//  1. The record is locked; what the engine's journal says is made and the record
//     does not know, because a process was killed between the two, joins it.
//  2. The template is deployed. When that fails nothing is deleted, and what it
//     made joins the managed resources.
//  3. What is managed and was not made again is gone: by the id of S-12 and the
//     identity of its scope, so that neither the name of an import nor the nested
//     deployment in which it stands counts.
//  4. A template with gone as its deletedResources is made ([Reconstruct]) and
//     given to the engine, in passes, until all are deleted or none gets further.
//  5. Deny settings are applied, by a template too.
//  6. The record is written. What could not be deleted stays managed, with the
//     reason, and the next update tries again.
//
// Every step may be cut off and begun again: the engine's journal says what is
// made, and what is deleted is not there to be deleted again.
package stack
