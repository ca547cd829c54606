// Package arm holds the wire types of Radial's ARM-style API, as clients and
// server exchange them.
package arm

import (
	"encoding/json"
	"time"
)

// Resource is a resource on the wire.
type Resource struct {
	ID         string            `json:"id,omitempty"`
	Name       string            `json:"name,omitempty"`
	Type       string            `json:"type,omitempty"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitzero"`
	SystemData json.RawMessage   `json:"systemData,omitempty"`
	// Properties hold provisioningState and status beside the type's own.
	Properties map[string]any `json:"properties"`
	// Owner is the cluster object that the resource stands for; written by
	// controllers, answered to all.
	Owner *Owner `json:"owner,omitempty"`
}

// Put is the body of a PUT by a controller: a Resource and what goes with it in
// the same transaction.
type Put struct {
	Resource
	// ImplicitParents makes the resource group and the application of the
	// resource when they do not exist; they go with their last member.
	ImplicitParents bool `json:"implicitParents,omitempty"`
	// Replaces is the uid of the stored owner when the writer knows that its
	// object is gone.
	Replaces string `json:"replaces,omitempty"`
}

// Owner is an object of a cluster.
type Owner struct {
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	Kind      string `json:"kind"`
	Name      string `json:"name"`
	UID       string `json:"uid"`
}

// HeaderOwnerUID on a DELETE names the uid that the stored owner must have.
const HeaderOwnerUID = "Radial-Owner-Uid"

// List is a page of resources.
type List struct {
	Value    []Resource `json:"value"`
	NextLink string     `json:"nextLink,omitempty"`
}

// OperationStatus is the answer of operationStatuses/{id}.
type OperationStatus struct {
	ID        string     `json:"id"`
	Name      string     `json:"name"`
	Status    string     `json:"status"`
	StartTime time.Time  `json:"startTime"`
	EndTime   *time.Time `json:"endTime,omitempty"`
	Error     *Error     `json:"error,omitempty"`
}

// Operation is an operation with what it does: what operationStatuses answers
// beyond the status that pollers read. Lists of operations are of these, the
// one accepted last first.
type Operation struct {
	OperationStatus
	ResourceID string `json:"resourceId"`
	// Verb is PUT, PATCH or DELETE.
	Verb       string `json:"verb"`
	APIVersion string `json:"apiVersion,omitempty"`
	// Parent is the operation that waits for this one.
	Parent string `json:"parent,omitempty"`
	// Parked: it waits for Children operations and holds no worker.
	Parked   bool `json:"parked,omitempty"`
	Children int  `json:"children,omitempty"`
	// Attempts counts how often a worker took it up.
	Attempts int `json:"attempts,omitempty"`
	// CancelRequested is when its end was asked for while a worker held it.
	CancelRequested *time.Time `json:"cancelRequested,omitempty"`
	Deadline        *time.Time `json:"deadline,omitempty"`
}

// OperationMessage is one line of an operation's log, at
// operationStatuses/{id}/messages.
type OperationMessage struct {
	// Seq counts from 1; `after` asks for those above it.
	Seq  int64     `json:"seq"`
	Time time.Time `json:"time"`
	Text string    `json:"text"`
	// Event is what a deployment says of one of its resources, for programs.
	Event json.RawMessage `json:"event,omitempty"`
}

// ErrorEnvelope is the body of every answer of 400 and above.
type ErrorEnvelope struct {
	Error Error `json:"error"`
}

// Error is the ARM error.
type Error struct {
	Code           string      `json:"code"`
	Message        string      `json:"message"`
	Target         string      `json:"target,omitempty"`
	Details        []Error     `json:"details,omitempty"`
	AdditionalInfo []ErrorInfo `json:"additionalInfo,omitempty"`
}

// ErrorInfo is additional information of a named type, such as "owner".
type ErrorInfo struct {
	Type string          `json:"type"`
	Info json.RawMessage `json:"info"`
}

// Graph is the answer of getGraph.
type Graph struct {
	Resources []GraphResource `json:"resources"`
}

// GraphResource is one node.
type GraphResource struct {
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Type              string            `json:"type"`
	ProvisioningState string            `json:"provisioningState"`
	Connections       []GraphConnection `json:"connections"`
	OutputResources   []GraphOutput     `json:"outputResources"`
}

// GraphConnection is one end of an edge: Outbound at the one that uses,
// Inbound at the one that is used.
type GraphConnection struct {
	ID        string `json:"id"`
	Direction string `json:"direction"`
	Kind      string `json:"kind,omitempty"`
	Name      string `json:"name,omitempty"`
}

// GraphOutput is an output resource.
type GraphOutput struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Name string `json:"name"`
}

// Change is one event of the change stream at /watch/changes: newline-delimited
// JSON. The first line, and any line after a gap, has Reset: what was seen
// before may be stale, ask again for what is in flight.
type Change struct {
	Seq       int64  `json:"seq"`
	ID        string `json:"id,omitempty"`
	Operation string `json:"operation,omitempty"`
	State     string `json:"state,omitempty"`
	Deleted   bool   `json:"deleted,omitempty"`
	Reset     bool   `json:"reset,omitempty"`
}
