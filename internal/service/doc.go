// Package service is the operator: it makes the services of projects run, asks
// the installation's cloud provider for what they need, and folds the answers
// into their status.
//
// Three controllers each answer one question: what runs for an AnkkaService
// (service.go), what an AnkkaProject has in the cloud (project.go), and which
// identity an adopted Deployment runs as (workload.go). Decisions are pure
// functions of what is there and of the time: verdict.go judges one answer,
// policy.go and project_policy.go fold them, asks.go says what is asked,
// render.go what runs. apply.go is the one place that writes.
//
// The operator holds no power over a cloud and knows none: it speaks of six
// kinds, in the platform's words, and copies what a provider says. It reads no
// Secret. It stops nothing that runs, whatever a provider says or does not.
//
// Nothing polls: answers wake what asked for them, and what depends on time
// alone is looked at again at the moment at which it changes.
package service
