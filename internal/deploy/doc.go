// Package deploy is the engine of deployments: it runs templates of stacks,
// recipes and plain deployments, with all that they nest.
//
// A run is one graph (run.go, node.go): resources are made in parallel as soon
// as what each depends on is done. Resources of imports go to targets
// (targets.go), those of the control plane to its API (resource.go). What
// expressions read is fetched outside of the plan's lock (runtime.go). The
// journal (journal.go, recorder.go) is all that a run keeps: a later attempt of
// the same run goes on from it.
//
// # Guarantees
//
//   - Nothing is made before it is recorded as planned (D-31): all that can be
//     named before the deployment in one commit, the rest right before its turn.
//     So a process that is killed at any point leaves nothing behind that the
//     inventory does not name.
//   - An attempt that finds the journal of an earlier one ends as an undisturbed
//     run would: what is on record as made is not made again, what is not is
//     applied as it was (S-45).
//   - A failure stops what depends on it; everything else runs to its end. The
//     error names each resource that failed, once, why, and what was not made.
//   - Answers are sorted, and the same for every order and number of workers.
//   - Deletion takes dependants first, and never what is in another place than
//     where it was made. An output leaves the inventory only after its resource
//     is gone.
//   - Credentials and secure values are in nothing that is recorded, answered or
//     told.
package deploy
