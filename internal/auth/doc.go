// Package auth decides who calls the control plane and what they may do (D-46).
//
// Who: nobody is kept here. A bearer token is reviewed by the cluster
// (TokenReview) or by the OIDC issuer that it names; a client certificate is
// verified by the cluster's client authority or by one of ours; the headers of
// a front proxy, such as the Kubernetes aggregation layer, are believed when
// its certificate is. Anonymous callers are refused.
//
// What: role assignments in the store ([Assignment], resources of type
// System.Authorization/roleAssignments) give a principal a role at and below a
// scope. [Decide] is a pure function of identity, assignments and access. The
// cluster's own SubjectAccessReview decides one thing only: who is root, so
// that somebody can make the first assignment.
//
// [Handler] stands before the control plane, in a process of its own rooms:
// the server behind it needs to know nothing of roles, except to narrow lists
// and streams to what the caller may see ([Viewer]).
//
// # Guarantees
//
//   - Every decision, allowed or denied, goes to the audit log, without bodies
//     and secrets.
//   - A role that was taken away does not count for a request that begins after
//     the answer to its removal (on other replicas: after the change reached
//     them).
//   - When a decision cannot be made because the cluster, an issuer or the
//     store does not answer, the answer is 503, never a guess.
//   - What is not known here is denied to all but root.
package auth
