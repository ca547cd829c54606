// Package deploy runs the plan of a template: it names every resource, records
// all names in one commit, then makes the resources in parallel as soon as
// what each depends on is done, and records what came of it.
//
// # Guarantees
//
//   - Nothing is made before every planned resource is recorded (D-31), so a
//     process that is killed at any point leaves nothing behind that the
//     inventory does not name.
//   - A failure stops what depends on it; everything else runs to its end. The
//     error names each resource that failed, why, and what was not made.
//   - Deletion takes dependants first. An output leaves the inventory only
//     after its resource is gone.
package deploy
