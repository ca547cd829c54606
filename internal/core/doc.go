// Package core holds the vocabulary of Radial: resource ids, types, owners,
// operations, output resources, edges and errors. It depends on the standard
// library only, so every other package may speak its words.
//
// # Guarantees
//
//   - Ids and type names compare without case and keep the case first written
//     (D-3): [ID.Key] is the form to compare and to index, [ID.String] the form
//     to show.
//   - An operation moves accepted → leased → ended and never back. Its fence
//     grows with every lease; only the holder of the newest fence may end it.
//   - Errors are matched by [Code] and never hold a sensitive value.
package core

// Version is the release of this build, set by the linker.
var Version = "0.0.0-dev"
