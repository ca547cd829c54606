// Package gcp is the cloud provider of Google Cloud: the calls by which a
// project of Google Cloud serves the six kinds of cloud requests. All else is
// package provider's.
//
//	identity           a service account, that the workload acts as (Workload Identity)
//	secret-access      conditional bindings in the project's policy
//	secret-sync        reads Secret Manager
//	bucket             a bucket of Cloud Storage
//	bucket-credential  an HMAC key of the service account, for the S3 API
//	wrapping-key       a binding in the policy of the key of Cloud KMS
//
// Google's answers are for now and not for good: what one call has made another
// may not see for a minute. So every method reads what is there, makes the one
// next thing that is missing, and answers Waiting where Google needs time; it
// never sleeps, and takes no answer's message for a fact where a read can tell.
//
// docs/cloud/gcp.md tells how it is installed and which power it has.
package gcp
