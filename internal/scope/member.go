package scope

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

// Member is a cluster that the server was told of.
type Member struct {
	Connect Connect
	// Changed reports that what Connect reads is not what it read last; nil is
	// never.
	Changed func() bool
}

type member struct {
	Member
	// held has the one place of who may connect.
	held chan struct{}
	conn *connection
}

// Member registers a cluster under a name, which is also that of its plane:
// /planes/kubernetes/<name>.
func (r *Resolver) Member(name string, m Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[strings.ToLower(name)] = &member{Member: m, held: make(chan struct{}, 1)}
}

// Members are the names of the clusters that the server was told of, sorted.
func (r *Resolver) Members() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return keys(r.members)
}

func (r *Resolver) member(ctx context.Context, name string) (*connection, error) {
	name = strings.ToLower(name)
	r.mu.Lock()
	m := r.members[name]
	r.mu.Unlock()
	if m == nil {
		known := "this server was started without a kubeconfig, so it has none"
		if names := r.Members(); len(names) > 0 {
			known = "known: " + strings.Join(names, ", ")
		}
		return nil, core.Errorf(core.CodeTarget, "there is no cluster %q (%s)", name, known).WithTarget(name)
	}
	select {
	case m.held <- struct{}{}:
		defer func() { <-m.held }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if m.conn != nil && (m.Changed == nil || !m.Changed()) {
		return m.conn, nil
	}
	c, err := m.Connect(ctx)
	if err != nil {
		return nil, core.Errorf(core.CodeTarget, "cluster %q cannot be used: %w", name, err).WithTarget(name)
	}
	m.conn = newConnection(c, m.Connect, false)
	return m.conn, nil
}

// File is a member whose kubeconfig is a file of the server's own. The file is
// looked at before each use: one that was rotated counts from then on. tune may
// be nil; it adds to a configuration what the process has for all (a user agent,
// traces). Path "" is the cluster that the pod runs in.
func File(name, path string, o kubernetes.Options, tune func(*rest.Config)) Member {
	var mu sync.Mutex
	var read stamp // by the last Connect
	return Member{
		Connect: func(context.Context) (*kubernetes.Cluster, error) {
			now := stampOf(path)
			config, err := clientcmd.BuildConfigFromFlags("", path)
			switch {
			case err != nil && path == "":
				return nil, fmt.Errorf("the pod's own credentials cannot be used: %w", err)
			case err != nil:
				return nil, fmt.Errorf("its kubeconfig %s cannot be used: %w", path, err)
			}
			if tune != nil {
				tune(config)
			}
			c, err := kubernetes.New(name, config, o)
			if err == nil {
				mu.Lock()
				read = now
				mu.Unlock()
			}
			return c, err
		},
		Changed: func() bool {
			mu.Lock()
			defer mu.Unlock()
			return stampOf(path) != read
		},
	}
}

// stamp tells versions of a file apart.
type stamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path) // a mounted Secret's is a link to the version of now
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

// ParseMember reads name=path, as flags of servers have it.
func ParseMember(text string) (name, path string, err error) {
	name, path, ok := strings.Cut(text, "=")
	if !ok || name == "" || path == "" || strings.ContainsAny(name, "/ \t") {
		return "", "", fmt.Errorf("%q does not name a member cluster: write name=kubeconfig-file", text)
	}
	return name, path, nil
}
