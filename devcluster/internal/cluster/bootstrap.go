package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryac "k8s.io/client-go/applyconfigurations/discovery/v1"
	rbacac "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/devcluster/internal/fakenode"
	"github.com/radial-project/radial/devcluster/internal/realnode"
)

// kubeletClientUser is whom kubelets see when the API server fetches logs or opens a shell.
const kubeletClientUser = "devcluster:kubelet-client"

var applyAsDevcluster = metav1.ApplyOptions{FieldManager: "devcluster", Force: true}

// bootstrap grants the cluster's own identities what they need. It is repeated at each start, so that a
// newer devcluster finds its rules on an older state directory.
func bootstrap(ctx context.Context, client kubernetes.Interface) error {
	rule := func(group string, resources, verbs []string) *rbacac.PolicyRuleApplyConfiguration {
		return rbacac.PolicyRule().WithAPIGroups(group).WithResources(resources...).WithVerbs(verbs...)
	}
	role := rbacac.ClusterRole(fakeNodeUser).WithRules(
		rule("", []string{"nodes"}, []string{"get", "create", "patch"}),
		rule("", []string{"nodes/status"}, []string{"patch"}),
		rule("", []string{"pods"}, []string{"list", "watch", "delete"}),
		rule("", []string{"pods/status"}, []string{"patch"}),
	)
	if _, err := client.RbacV1().ClusterRoles().Apply(ctx, role, applyAsDevcluster); err != nil {
		return fmt.Errorf("role of the fake node: %w", err)
	}
	leases := rbacac.Role(fakeNodeUser, corev1.NamespaceNodeLease).WithRules(
		rule("coordination.k8s.io", []string{"leases"}, []string{"create", "patch"}))
	if _, err := client.RbacV1().Roles(corev1.NamespaceNodeLease).Apply(ctx, leases, applyAsDevcluster); err != nil {
		return fmt.Errorf("lease role of the fake node: %w", err)
	}
	user := func(name string) *rbacac.SubjectApplyConfiguration {
		return rbacac.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.UserKind).WithName(name)
	}
	ref := func(kind, name string) *rbacac.RoleRefApplyConfiguration {
		return rbacac.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
	}
	leaseBinding := rbacac.RoleBinding(fakeNodeUser, corev1.NamespaceNodeLease).WithSubjects(user(fakeNodeUser)).WithRoleRef(ref("Role", fakeNodeUser))
	if _, err := client.RbacV1().RoleBindings(corev1.NamespaceNodeLease).Apply(ctx, leaseBinding, applyAsDevcluster); err != nil {
		return fmt.Errorf("lease binding of the fake node: %w", err)
	}
	for subject, clusterRole := range map[string]string{
		fakeNodeUser:      fakeNodeUser,
		kubeletClientUser: "system:kubelet-api-admin",
	} {
		binding := rbacac.ClusterRoleBinding(subject).WithSubjects(user(subject)).WithRoleRef(ref("ClusterRole", clusterRole))
		if _, err := client.RbacV1().ClusterRoleBindings().Apply(ctx, binding, applyAsDevcluster); err != nil {
			return fmt.Errorf("binding of %s: %w", subject, err)
		}
	}
	return nil
}

// pruneNodes removes the nodes of an earlier start that this one does not run: they would stay in the cluster
// as NotReady, and pods could be bound to them.
func pruneNodes(ctx context.Context, client kubernetes.Interface, wanted []string) error {
	keep := map[string]bool{}
	for _, name := range wanted {
		keep[name] = true
	}
	list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("nodes: %w", err)
	}
	for _, n := range list.Items {
		ours := n.Labels[fakenode.Label] != "" || n.Name == realnode.NodeName
		if !ours || keep[n.Name] {
			continue
		}
		if err := client.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("node %s from an earlier start: %w", n.Name, err)
		}
	}
	return nil
}

// apiSlice is the EndpointSlice of the Service `kubernetes`.
const apiSlice = "kubernetes"

// publishAPI leads the Service `kubernetes` to an address at which pods reach the API server.
func publishAPI(ctx context.Context, client kubernetes.Interface, address string, port int) error {
	slice := discoveryac.EndpointSlice(apiSlice, corev1.NamespaceDefault).
		WithLabels(map[string]string{discoveryv1.LabelServiceName: apiSlice, discoveryv1.LabelManagedBy: "devcluster"}).
		WithAddressType(discoveryv1.AddressTypeIPv4).
		WithPorts(discoveryac.EndpointPort().WithName("https").WithProtocol(corev1.ProtocolTCP).WithPort(int32(port))).
		WithEndpoints(discoveryac.Endpoint().WithAddresses(address).WithConditions(discoveryac.EndpointConditions().WithReady(true)))
	if _, err := client.DiscoveryV1().EndpointSlices(corev1.NamespaceDefault).Apply(ctx, slice, applyAsDevcluster); err != nil {
		return fmt.Errorf("endpoints of the API server: %w", err)
	}
	return nil
}

// withdrawAPI takes the endpoints of an earlier start with a real node away: nothing listens there now.
func withdrawAPI(ctx context.Context, client kubernetes.Interface) error {
	err := client.DiscoveryV1().EndpointSlices(corev1.NamespaceDefault).Delete(ctx, apiSlice, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("endpoints of the API server: %w", err)
	}
	return nil
}
