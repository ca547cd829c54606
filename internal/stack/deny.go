package stack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/radial-project/radial/api/radapp"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/deploy"
	"github.com/radial-project/radial/internal/template"
)

// Mode says what others may not do to managed resources (S-56).
type Mode string

// The modes; "" is none.
const (
	DenyNone           Mode = "none"
	DenyDelete         Mode = "denyDelete"
	DenyWriteAndDelete Mode = "denyWriteAndDelete"
)

// Bounds of deny settings.
const (
	maxPrincipals = 5
	maxActions    = 200
)

// DenySettings are what others may not do to managed resources.
type DenySettings struct {
	Mode Mode `json:"mode"`
	// Principals are users and groups that may all the same, as the cluster's
	// API server knows them.
	Principals []string `json:"excludedPrincipals,omitempty"`
	// Actions are allowed to everybody: "<group>/<Kind>/<write or delete>", where
	// each part may be *.
	Actions []string `json:"excludedActions,omitempty"`
	// ChildScopes is accepted and always so: what is in a namespace is denied by
	// its own label.
	ChildScopes bool `json:"applyToChildScopes,omitempty"`
}

// denies reports whether anything is denied.
func (d DenySettings) denies() bool { return d.Mode != "" && d.Mode != DenyNone }

// Check refuses settings that cannot be meant.
func (d DenySettings) Check() error {
	switch d.Mode {
	case "", DenyNone, DenyDelete, DenyWriteAndDelete:
	default:
		return core.Errorf(core.CodeInvalidContent, "denySettings.mode is %q: it is one of %s, %s and %s", d.Mode, DenyNone, DenyDelete, DenyWriteAndDelete).WithTarget("denySettings.mode")
	}
	if len(d.Principals) > maxPrincipals {
		return core.Errorf(core.CodeInvalidContent, "denySettings.excludedPrincipals has %d entries: at most %d are allowed", len(d.Principals), maxPrincipals).WithTarget("denySettings.excludedPrincipals")
	}
	if len(d.Actions) > maxActions {
		return core.Errorf(core.CodeInvalidContent, "denySettings.excludedActions has %d entries: at most %d are allowed", len(d.Actions), maxActions).WithTarget("denySettings.excludedActions")
	}
	for _, a := range d.Actions {
		if _, err := parseAction(a); err != nil {
			return err
		}
	}
	return nil
}

// excluded is one entry of excludedActions.
type excluded struct{ group, kind, operation string }

func parseAction(text string) (excluded, error) {
	parts := strings.Split(text, "/")
	if len(parts) == 3 {
		e := excluded{parts[0], parts[1], strings.ToLower(parts[2])}
		if e.group != "" && e.kind != "" && (e.operation == "*" || e.operation == "write" || e.operation == "delete") {
			return e, nil
		}
	}
	return excluded{}, core.Errorf(core.CodeInvalidContent, "denySettings.excludedActions has %q: an action is <group>/<Kind>/<write or delete>, such as apps/Deployment/write; each part may be *", text).WithTarget("denySettings.excludedActions")
}

// cel is the condition under which the action is allowed.
func (e excluded) cel() string {
	conditions := []string{}
	if e.group != "*" {
		group := e.group
		if strings.EqualFold(group, "core") {
			group = ""
		}
		conditions = append(conditions, "request.kind.group == "+quote(group))
	}
	if e.kind != "*" {
		conditions = append(conditions, "request.kind.kind == "+quote(e.kind))
	}
	switch e.operation {
	case "write":
		conditions = append(conditions, `request.operation == "UPDATE"`)
	case "delete":
		conditions = append(conditions, `request.operation == "DELETE"`)
	}
	if len(conditions) == 0 {
		return "true"
	}
	return strings.Join(conditions, " && ")
}

// quote writes text as a literal of CEL; those of JSON are some.
func quote(text string) string {
	b, _ := json.Marshal(text)
	return string(b)
}

// What always may: the controllers of Kubernetes itself. Without them an object
// that is being deleted could not come to its end (finalizers, the garbage
// collector, namespaces), and a Deployment not be rolled out.
const systemMay = `"system:serviceaccounts:kube-system" in request.userInfo.groups || "system:nodes" in request.userInfo.groups || ` +
	`request.userInfo.username in ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:serviceaccount:radial-system:radial-controller"]`

const (
	typePolicy  = "admissionregistration.k8s.io/ValidatingAdmissionPolicy"
	typeBinding = "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding"
	typeReview  = "authentication.k8s.io/SelfSubjectReview"
	// ownerLabel is the label by which targets mark what is made for an owner.
	ownerLabel = radapp.AnnotationOwner
)

// OwnerLabelValue is the value of the label on what is made for an owner; it is
// the one that the Kubernetes extension stamps.
func OwnerLabelValue(id core.ID) string {
	sum := sha256.Sum256([]byte(id.Key()))
	return hex.EncodeToString(sum[:16])
}

// What follows a stack's policy's name in those of its further ones.
const (
	namespacesSuffix   = "-namespaces"
	subresourcesSuffix = "-subresources"
)

// policyName is the name of a stack's policy in every cluster.
func policyName(id core.ID) string { return "radial-stack-" + OwnerLabelValue(id) }

// policies makes the template of a stack's admission policies for clusters, each
// given by one resource in it. Who Radial itself is there, the template asks the
// cluster: the way in may be another one the next time.
func policies(id core.ID, d DenySettings, clusters []cluster) ([]byte, error) {
	doc := newDocument()
	samples := make([]Managed, len(clusters))
	for i, c := range clusters {
		samples[i] = c.sample
	}
	aliases := doc.imports(samples)
	operations := []string{"DELETE"}
	what := "deletions"
	if d.Mode == DenyWriteAndDelete {
		operations, what = []string{"UPDATE", "DELETE"}, "changes and deletions"
	}
	for i, c := range clusters {
		alias, n := aliases[importKey(c.sample.Affected)], fmt.Sprint(i+1)
		// Expressions of the template make lists of CEL: its string() of an array
		// is JSON.
		mine := "[concat('!(request.userInfo.username in ', string(createArray(reference('me" + n + "').status.userInfo.username)), ')')]"
		conditions := []condition{
			{"not-radial", mine},
			{"not-the-cluster", "!(" + systemMay + ")"},
		}
		if len(d.Principals) > 0 {
			list, err := json.Marshal(d.Principals)
			if err != nil {
				return nil, err
			}
			conditions = append(conditions, condition{"not-excluded", fmt.Sprintf("!(request.userInfo.username in %[1]s || request.userInfo.groups.exists(g, g in %[1]s))", list)})
		}
		// What is being deleted already must get rid of its finalizers.
		own := append(slices.Clone(conditions), condition{"not-ending", `request.operation == "DELETE" || !has(oldObject.metadata.deletionTimestamp)`})
		for i, a := range d.Actions {
			e, err := parseAction(a)
			if err != nil {
				return nil, err
			}
			own = append(own, condition{fmt.Sprintf("not-allowed-%d", i+1), "!(" + e.cel() + ")"})
		}
		name := policyName(id)
		objects := policy{
			Metadata: metadata{Name: name},
			Spec: policySpec{
				Failure: "Fail",
				Match: match{
					Selector: &selector{map[string]string{ownerLabel: OwnerLabelValue(id)}},
					// Those two carry the whole Pod, label and all. Status stays the controllers'.
					Rules: []rule{{[]string{"*"}, []string{"*"}, operations, []string{"*", "pods/ephemeralcontainers", "pods/resize"}, "*"}},
				},
				Conditions: own,
				Validations: []validation{{"false", fmt.Sprintf("this object is managed by the stack %s (%s), whose deny settings (%s) refuse %s by others: change it through the stack, or let its excludedPrincipals have you",
					id.Name(), id, d.Mode, what)}},
			},
		}
		if err := doc.policy(alias, n, objects); err != nil {
			return nil, err
		}
		if c.hasSubresources() {
			below := policy{
				Metadata: metadata{Name: name + subresourcesSuffix},
				Spec: policySpec{
					Failure:     "Fail",
					Match:       match{Rules: c.subresourceRules()},
					Conditions:  append(slices.Clone(conditions), condition{"of-managed", c.subresourceOf()}),
					Validations: objects.Spec.Validations,
				},
			}
			if err := doc.policy(alias, n+"s", below); err != nil {
				return nil, err
			}
		}
		if len(c.namespaces) == 0 {
			continue
		}
		// With a namespace all that is in it goes, by controllers that always may.
		list, err := json.Marshal(c.namespaces)
		if err != nil {
			return nil, err
		}
		around := policy{
			Metadata: metadata{Name: name + namespacesSuffix},
			Spec: policySpec{
				Failure:    "Fail",
				Match:      match{Rules: []rule{{[]string{""}, []string{"*"}, []string{"DELETE"}, []string{"namespaces"}, "*"}}},
				Conditions: append(slices.Clone(conditions), condition{"holds-managed", "request.name in " + string(list)}),
				Validations: []validation{{"false", fmt.Sprintf("this namespace holds objects of the stack %s (%s), whose deny settings (%s) refuse deletions by others: delete the stack first",
					id.Name(), id, d.Mode)}},
			},
		}
		if err := doc.policy(alias, n+"n", around); err != nil {
			return nil, err
		}
	}
	return encode(doc)
}

// cluster is one in which resources are managed: one of them, which leads there,
// and the namespaces that they are in.
type cluster struct {
	sample     Managed
	namespaces []string
	subresources
}

// clustersOf finds the clusters of resources, each once however many scopes lead
// there, in the order of their marks, with what deny settings need of them.
func clustersOf(list []Managed, d DenySettings) []cluster {
	found := map[string]*cluster{}
	for _, m := range list {
		if m.Scope == nil || !strings.EqualFold(m.Extension, kubernetes) {
			continue
		}
		key := scopeKey(m.Affected)
		if m.Identity != nil && m.Identity.ConfigID != "" {
			key = m.Identity.ConfigID
		}
		c := found[key]
		if c == nil {
			c = &cluster{sample: m}
			found[key] = c
		}
		if id, err := template.ParseExtensionID(m.ID); err == nil {
			if ns := id.Get(template.KeyNamespace); ns != "" && !slices.Contains(c.namespaces, ns) {
				c.namespaces = append(c.namespaces, ns)
			}
		}
		c.add(m, d)
	}
	var out []cluster
	for _, key := range slices.Sorted(maps.Keys(found)) {
		c := *found[key]
		slices.Sort(c.namespaces)
		slices.Sort(c.scaled)
		slices.Sort(c.pods)
		out = append(out, c)
	}
	return out
}

// planned are the policies of clusters as they will be recorded, known before
// they are made: whoever deletes them later finds them by name and owner.
func planned(id core.ID, clusters []cluster) []Managed {
	var out []Managed
	for _, c := range clusters {
		names := []string{policyName(id)}
		if len(c.namespaces) > 0 {
			names = append(names, policyName(id)+namespacesSuffix)
		}
		if c.hasSubresources() {
			names = append(names, policyName(id)+subresourcesSuffix)
		}
		for _, name := range names {
			var before string
			for _, kind := range []string{typePolicy, typeBinding} {
				x := template.ExtensionID{Provider: kubernetes, Parts: []template.IDPart{{Key: template.KeyType, Value: kind}, {Key: template.KeyName, Value: name}}}
				m := Managed{Status: StatusManaged, Affected: deploy.Affected{
					Scope: c.sample.Scope, ID: x.String(), Extension: c.sample.Extension, Version: c.sample.Version, Config: c.sample.Config, Type: kind, APIVersion: "v1",
				}}
				if c.sample.Identity != nil && c.sample.Identity.ConfigID != "" {
					m.Identity = &deploy.Identity{ConfigID: c.sample.Identity.ConfigID}
				}
				if before != "" {
					m.DependsOn = []string{before}
				}
				before = m.Key()
				out = append(out, m)
			}
		}
	}
	sortManaged(out)
	return out
}

// deny makes the policies what the settings say, and deletes those of clusters in
// which nothing is managed any more.
func (r *run) deny(ctx context.Context, d DenySettings) (*core.Error, error) {
	r.next.Deny = d
	if !d.denies() {
		fault, err := r.undeny(ctx)
		r.denyStatus(nil)
		return fault, err
	}
	clusters := clustersOf(r.next.Resources, d)
	want := planned(r.next.ID, clusters)
	var gone []Managed
	wanted := setOf(want, ofManaged)
	for _, p := range r.next.Policies {
		if _, ok := wanted.find(p.Affected); !ok {
			gone = append(gone, p)
		}
	}
	fault, err := r.applyPolicies(ctx, d, clusters, want, gone)
	if err != nil {
		return nil, err
	}
	r.denyStatus(fault)
	if len(gone) == 0 || fault != nil {
		return fault, nil
	}
	return r.deletePolicies(ctx, gone)
}

// applyPolicies records the policies and then makes them.
func (r *run) applyPolicies(ctx context.Context, d DenySettings, clusters []cluster, want, besides []Managed) (*core.Error, error) {
	r.next.Policies = append(slices.Clone(want), besides...)
	sortManaged(r.next.Policies)
	if err := r.save(ctx, StateDeny); err != nil {
		return nil, err
	}
	if len(clusters) == 0 {
		return nil, nil
	}
	r.phase(StateDeny, "applying the deny settings")
	text, err := policies(r.next.ID, d, clusters)
	if err != nil {
		return nil, err
	}
	q := r.request(r.next.ID.Name()+"-deny", text)
	q.Run, q.Previous, q.Record = "", nil, nil
	res, err := r.o.Engine.Deploy(ctx, q)
	if stopped(ctx, err) {
		return nil, err
	}
	if res != nil {
		have := setOf(r.next.Policies, ofManaged)
		for _, a := range res.Resources {
			if i, ok := have.find(a); ok && a.Identity != nil {
				r.next.Policies[i].Identity = a.Identity
			}
		}
	}
	if err != nil {
		e := core.AsError(err)
		if forbidden(e) {
			// Nothing was made now; what no uid is known of never was.
			r.next.Policies = slices.DeleteFunc(r.next.Policies, func(m Managed) bool { return m.Identity == nil || m.Identity.UID == "" })
		}
		return core.Errorf(e.Code, "the deny settings could not be applied, so others may still change what the stack manages: %w", err).WithDetails(e.Details...), nil
	}
	return nil, nil
}

// forbidden reports whether the cluster refused all that failed, for lack of rights.
func forbidden(e *core.Error) bool {
	if len(e.Details) == 0 {
		return e.Code == core.CodeForbidden
	}
	return !slices.ContainsFunc(e.Details, func(d core.Error) bool { return !forbidden(&d) })
}

// renewPolicies makes policies of before let in who Radial is today, so that its
// own rules do not refuse it.
func (r *run) renewPolicies(ctx context.Context) *core.Error {
	if len(r.next.Policies) == 0 || !r.next.Deny.denies() {
		return nil
	}
	clusters := clustersOf(r.next.Resources, r.next.Deny)
	fault, err := r.applyPolicies(ctx, r.next.Deny, clusters, planned(r.next.ID, clusters), r.beyond(clusters))
	if err != nil {
		return core.AsError(err)
	}
	return fault
}

// beyond are the recorded policies that clusters do not have.
func (r *run) beyond(clusters []cluster) []Managed {
	have := setOf(planned(r.next.ID, clusters), ofManaged)
	var out []Managed
	for _, p := range r.next.Policies {
		if _, ok := have.find(p.Affected); !ok {
			out = append(out, p)
		}
	}
	return out
}

// undeny takes all policies away.
func (r *run) undeny(ctx context.Context) (*core.Error, error) {
	if len(r.next.Policies) == 0 {
		return nil, nil
	}
	r.phase(StateDeny, "taking the deny settings away")
	return r.deletePolicies(ctx, r.next.Policies)
}

// deletePolicies deletes policies; those that stay are kept, with the failure.
func (r *run) deletePolicies(ctx context.Context, gone []Managed) (*core.Error, error) {
	done, still, _, err := r.pass(ctx, gone, Delete, 0)
	if err != nil {
		return nil, err
	}
	out := setOf(done, itself)
	kept := r.next.Policies[:0:0]
	for _, p := range r.next.Policies {
		if _, ok := out[keyOf(p.Affected)]; !ok {
			kept = append(kept, p)
		}
	}
	r.next.Policies = kept
	if len(still) == 0 {
		return nil, nil
	}
	return core.Errorf(CodeUnmanage, "the deny settings could not be taken away: %s: %w", still[0].ID, still[0].Error).WithTarget(still[0].ID), nil
}

// denyStatus says of each resource what is denied.
func (r *run) denyStatus(fault *core.Error) {
	for i, m := range r.next.Resources {
		status := string(r.next.Deny.Mode)
		switch {
		case !r.next.Deny.denies():
			status = string(DenyNone)
		case m.Scope == nil || !strings.EqualFold(m.Extension, kubernetes):
			status = "notSupported"
		case fault != nil:
			status = string(DenyNone)
		}
		r.next.Resources[i].DenyStatus = status
	}
}
