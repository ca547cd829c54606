package service

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/identity"
)

// Reasons of identity.Condition. Only ReasonReady and ReasonShared come with
// True.
const (
	ReasonReady              = "Ready"
	ReasonShared             = "SharedServiceAccount"
	ReasonWaiting            = "Waiting"
	ReasonFailed             = "Failed"
	ReasonNoProvider         = "NoCloudProvider"
	ReasonNoProject          = "NotInAProject"
	ReasonDefaultAccount     = "DefaultServiceAccount"
	ReasonAccountNotFound    = "ServiceAccountNotFound"
	ReasonAccountConflict    = "ServiceAccountConflict"
	ReasonServiceHasName     = "NameIsAService"
	ReasonServiceAccountUsed = "ServiceAccountOfAService"
	ReasonBadName            = "NameTooLongOrDotted"
	ReasonBadValue           = "InvalidAnnotation"
)

// runsAs is the ServiceAccount of a Deployment's Pods.
func runsAs(d *appsv1.Deployment) string {
	if n := d.Spec.Template.Spec.ServiceAccountName; n != "" {
		return n
	}
	return identity.DefaultAccount
}

// projectOf is the project that a namespace is of; "" for none.
func projectOf(namespace string) string {
	id, ok := strings.CutPrefix(namespace, v1alpha1.NamespacePrefix)
	if !ok || v1alpha1.ValidateProject(id) != nil {
		return ""
	}
	return id
}

// said is one condition in the making.
type said struct {
	reason, message, identity string
	ok                        bool
}

// Workload is what is known of a Deployment that asks, before anything is
// asked for it.
type Workload struct {
	Deployment *appsv1.Deployment
	// Provider says that the installation has one.
	Provider bool
	// Service says that there is a service of the Deployment's name, and
	// AccountService one that the ServiceAccount is of.
	Service, AccountService bool
	// Account says that its ServiceAccount is there.
	Account bool
	// First is the Deployment that asks for the same ServiceAccount and asked
	// first; "" for this one.
	First string
}

// Hindrance is why a Deployment gets no identity of its own; nil where it does.
func (w Workload) hindrance() *said {
	d := w.Deployment
	no := func(reason, format string, args ...any) *said {
		return &said{reason: reason, message: fmt.Sprintf(format, args...)}
	}
	account := runsAs(d)
	switch {
	case !w.Provider:
		return no(ReasonNoProvider, "the installation has no cloud provider, and so no identities")
	case projectOf(d.Namespace) == "":
		return no(ReasonNoProject, "namespace %s is not a project's: identities are for workloads in namespaces %s<project>", d.Namespace, v1alpha1.NamespacePrefix)
	case v1alpha1.ValidateName("workload", d.Name) != nil:
		return no(ReasonBadName, "an identity is asked for under the Deployment's name, which must be at most 63 characters of a-z, 0-9 and hyphens")
	case w.Service:
		return no(ReasonServiceHasName, "%s is the name of a service of the project; give the Deployment another", d.Name)
	case account == identity.DefaultAccount:
		return no(ReasonDefaultAccount, "it runs as ServiceAccount default, as every Pod of the namespace may; give it a ServiceAccount of its own")
	case w.AccountService:
		return no(ReasonServiceAccountUsed, "ServiceAccount %s is a service's or project's; give the Deployment one of its own", account)
	case !w.Account:
		return no(ReasonAccountNotFound, "ServiceAccount %s, as which it runs, does not exist", account)
	}
	return nil
}

// report is the annotation's text, with the time of the last change kept.
func (s said) report(before identity.Report, now time.Time) string {
	status := metav1.ConditionFalse
	switch {
	case s.ok:
		status = metav1.ConditionTrue
	case s.reason == ReasonWaiting:
		status = metav1.ConditionUnknown
	}
	c := metav1.Condition{Type: identity.Condition, Status: status, Reason: s.reason, Message: v1alpha1.Clean(s.message), LastTransitionTime: metav1.NewTime(now.UTC().Truncate(time.Second))}
	for _, b := range before.Conditions {
		if b.Type == c.Type && b.Status == c.Status {
			c.LastTransitionTime = b.LastTransitionTime
		}
	}
	raw, err := json.Marshal(identity.Report{Identity: s.identity, Conditions: []metav1.Condition{c}})
	if err != nil {
		panic("service: a report that is no JSON: " + err.Error()) // it is made of texts
	}
	return string(raw)
}

// judge makes of a verdict on the request what is said of the workload.
func judgeIdentity(v Verdict, account string) (said, map[string]string) {
	p := newPart(&v)
	id := read(&p, v1alpha1.ParseIdentityAnswer)
	switch {
	case p.failed():
		return said{reason: ReasonFailed, message: p.Detail}, nil
	case p.done():
		return said{reason: ReasonReady, ok: true, identity: id.Identity, message: "ServiceAccount " + account + " is bound to " + id.Identity}, id.ServiceAccountAnnotations
	}
	if p.Detail == "" {
		p.Detail = "waiting on the cloud provider for the identity"
	}
	return said{reason: ReasonWaiting, message: p.Detail}, nil
}
