package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/descriptor"
)

type serviceShown struct {
	Name       string             `json:"name"`
	Project    string             `json:"project"`
	Generation int64              `json:"generation"`
	Service    descriptor.Service `json:"service"`
	Paused     bool               `json:"paused"`
	Restarts   int64              `json:"restarts"`
	State      string             `json:"state"`
	Error      string             `json:"error,omitempty"`
	Status     *serviceObserved   `json:"status,omitempty"`
}

// serviceObserved is what the operator reports.
type serviceObserved struct {
	Generation       int64            `json:"generation,omitempty"`
	Lifecycle        string           `json:"lifecycle,omitempty"`
	Detail           string           `json:"detail,omitempty"`
	ReadyInstances   int64            `json:"readyInstances,omitempty"`
	DesiredInstances int64            `json:"desiredInstances,omitempty"`
	ObjectStorage    *storageObserved `json:"objectStorage,omitempty"`
}

type storageObserved struct {
	Phase  string `json:"phase,omitempty"`
	Detail string `json:"detail,omitempty"`
	Bucket string `json:"bucket,omitempty"`
}

// phrase says how storage stands, in the provider's words; what of the platform
// asked for it is nobody's concern here (C-109).
func (o *storageObserved) phrase(what string) string {
	if o == nil {
		return ""
	}
	out := map[string]string{"Waiting": "waiting", "Provisioned": "provisioned", "Recovered": "recovered existing bucket", "Supplied": "supplied", "Failed": what + " provisioning failed"}[o.Phase]
	if out == "" {
		out = strings.ToLower(o.Phase)
	}
	if o.Bucket != "" {
		out += " (" + o.Bucket + ")"
	}
	if o.Detail != "" {
		out += ": " + o.Detail
	}
	return out
}

// status is how a service stands as a whole.
func (v serviceShown) status() string {
	switch {
	case v.State == string(core.StateFailed), v.State == string(core.StateCanceled), v.State == string(core.StateDeleting):
		return v.State
	case v.Status == nil || v.Status.Lifecycle == "":
		return "UpdateInProgress"
	case v.Status.Generation < v.Generation && v.Status.Lifecycle != "NotDeployed":
		return "UpdateInProgress"
	}
	return v.Status.Lifecycle
}

func (v serviceShown) detail() string {
	switch {
	case v.Error != "":
		return v.Error
	case v.Status == nil || v.Status.Lifecycle == "":
		return "waiting for the operator"
	}
	return v.Status.Detail
}

func (v serviceShown) instances() string {
	if v.Status == nil {
		return "0/0"
	}
	return strconv.FormatInt(v.Status.ReadyInstances, 10) + "/" + strconv.FormatInt(v.Status.DesiredInstances, 10)
}

func (s *session) servicesCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "services", Aliases: []string{"service", "svc"}, Short: "Services: what a project runs, from a descriptor",
		Long: `A service is described by a document in YAML or JSON and run by the operator in the namespace of its project.`,
	}
	c.AddCommand(s.servicesApply(), s.servicesGet(), s.servicesList(), s.servicesDelete(),
		s.servicesChange("pause", "Keep a service at no instances", "paused"), s.servicesChange("resume", "Let a paused service run again", "resumed"),
		s.servicesChange("restart", "Replace the instances of a service", "being restarted"))
	return c
}

func waitFlag(c *cobra.Command, wait *bool) {
	c.Flags().BoolVar(wait, "wait", false, "wait until the service is ready, or has failed")
}

func servicePath(project, name string) string { return "/services/" + project + "/" + name }

func (s *session) servicesApply() *cobra.Command {
	var project, file string
	var wait bool
	c := &cobra.Command{
		Use: "apply -f FILE", Short: "Make services what their descriptors say", Args: cobra.NoArgs,
		Long: `Creates or changes the services that descriptors describe, in YAML or JSON; a file may hold several, parted by ---.
All that is wrong is said at once and before anything is sent. The platform sets its own variables (ANKKA_CLOUD_… and
others): a descriptor that sets one is refused.`,
		Example: `  radial services apply -f reports.yaml -p shop --wait
  cat reports.json | radial services apply -f - -p shop`,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := s.projectOf(project)
			if err != nil {
				return err
			}
			if file == "" {
				return usagef("which descriptor? say so with -f FILE, or -f - for standard input")
			}
			raw, err := s.contents(file)
			if err != nil {
				return err
			}
			docs, err := descriptor.Split(raw)
			if err != nil {
				return err
			}
			var all []descriptor.Descriptor
			for i, doc := range docs {
				d, err := descriptor.Parse(doc)
				if err != nil && len(docs) > 1 {
					return fmt.Errorf("document %d: %w", i+1, err)
				}
				if err != nil {
					return err
				}
				all = append(all, d)
			}
			shown := []serviceShown{}
			var text strings.Builder
			for _, d := range all {
				var v serviceShown
				if err := s.plain(c.Context(), http.MethodPut, servicePath(p, d.Name), nil, d, &v); err != nil {
					return err
				}
				said := fmt.Sprintf("Service %q of project %q is applied, at generation %d.\n", v.Name, p, v.Generation)
				if v.State != string(core.StateSucceeded) {
					said = fmt.Sprintf("Service %q of project %q is kept; the cluster has not taken it yet.\n", v.Name, p)
				}
				if wait {
					if v, err = s.waitService(c.Context(), p, d.Name); err != nil {
						return err
					}
					said = fmt.Sprintf("Service %q of project %q is %s.\n", v.Name, p, strings.ToLower(v.status()))
				}
				text.WriteString(said)
				shown = append(shown, v)
			}
			return s.show(view{data: shown, text: text.String()})
		},
	}
	s.projectFlag(c, &project)
	c.Flags().StringVarP(&file, "file", "f", "", "`file` with descriptors; - is standard input")
	waitFlag(c, &wait)
	return c
}

// waitService waits until what a service was last told is so, or has failed.
func (s *session) waitService(ctx context.Context, project, name string) (v serviceShown, err error) {
	c, err := s.client()
	if err != nil {
		return v, err
	}
	err = s.working(ctx, "waiting for service "+name, func(ctx context.Context) error {
		return c.FollowService(ctx, project, name, func(raw json.RawMessage) (bool, error) {
			v = serviceShown{}
			if err := json.Unmarshal(raw, &v); err != nil {
				return false, core.Errorf(core.CodeInternal, "the service cannot be read: its JSON has another shape than expected")
			}
			s.stands = fmt.Sprintf("service %q is %s", name, v.status())
			if d := v.detail(); d != "" {
				s.stands += ": " + d
			}
			if v.State != string(core.StateSucceeded) && !core.State(v.State).Terminal() {
				return false, nil
			}
			switch v.status() {
			case "Ready":
				return !v.Paused, nil
			case "Paused":
				return v.Paused, nil
			case "Failed", "Canceled", "NotDeployed":
				return true, fmt.Errorf("service %q is %s: %s", name, v.status(), v.detail())
			}
			return false, nil
		})
	})
	if err == nil {
		s.stands = ""
	}
	return v, err
}

func (s *session) servicesGet() *cobra.Command {
	var project string
	var wait bool
	c := &cobra.Command{
		Use: "get NAME", Aliases: []string{"show"}, Short: "Show how a service stands", Args: cobra.ExactArgs(1),
		Long: `Shows a service and how it stands. While it waits for something of the cloud, it says so in the words of the cloud
provider.`,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := s.inProject(project, "service", args[0])
			if err != nil {
				return err
			}
			var v serviceShown
			if wait {
				v, err = s.waitService(c.Context(), p, args[0])
			} else {
				err = s.plain(c.Context(), http.MethodGet, servicePath(p, args[0]), nil, nil, &v)
			}
			if err != nil {
				return err
			}
			storage := ""
			if v.Status != nil {
				storage = v.Status.ObjectStorage.phrase("object storage")
			}
			return s.show(view{data: v, text: fields([2]string{"Service", v.Name}, [2]string{"Project", v.Project}, [2]string{"Image", v.Service.Image}, [2]string{"Status", v.status()},
				[2]string{"Detail", v.detail()}, [2]string{"Instances", v.instances()}, [2]string{"Object storage", storage}, [2]string{"Generation", strconv.FormatInt(v.Generation, 10)})})
		},
	}
	s.projectFlag(c, &project)
	waitFlag(c, &wait)
	return c
}

func (s *session) servicesList() *cobra.Command {
	var project string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List the services of a project", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			p, err := s.projectOf(project)
			if err != nil {
				return err
			}
			var list struct {
				Value []serviceShown `json:"value"`
			}
			if err := s.plain(c.Context(), http.MethodGet, "/services/"+p, nil, nil, &list); err != nil {
				return err
			}
			t := table{columns: []string{"SERVICE", "STATUS", "READY", "GENERATION", "IMAGE", "DETAIL"}, empty: "The project has no services: radial services apply makes one."}
			for _, v := range list.Value {
				t.rows = append(t.rows, []string{v.Name, v.status(), v.instances(), strconv.FormatInt(v.Generation, 10), v.Service.Image, v.detail()})
			}
			return s.show(view{data: orEmpty(list.Value), table: t})
		},
	}
	s.projectFlag(c, &project)
	return c
}

func (s *session) servicesDelete() *cobra.Command {
	var project string
	var yes, wait bool
	c := &cobra.Command{
		Use: "delete NAME", Aliases: []string{"rm"}, Short: "Delete a service; what it has in the cloud stays", Args: cobra.ExactArgs(1),
		Long: `Deletes a service and what runs for it. Its bucket stays in the cloud account, with all that is in it, and so does the
Secret with its credential: a service of the same name finds them again.`,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := s.inProject(project, "service", args[0])
			if err != nil {
				return err
			}
			if err := s.confirm(yes, "Delete service "+args[0]+" of project "+p+"?"); err != nil {
				return err
			}
			var going struct {
				Operation string `json:"operation"`
			}
			if err := s.plain(c.Context(), http.MethodDelete, servicePath(p, args[0]), nil, nil, &going); err != nil {
				return err
			}
			if going.Operation != "" && !wait {
				return s.done(going, "Service %q of project %q is being deleted.", args[0], p)
			}
			if going.Operation != "" {
				api, err := s.client()
				if err != nil {
					return err
				}
				err = s.working(c.Context(), "waiting for the end of service "+args[0], func(ctx context.Context) error {
					return api.FollowService(ctx, p, args[0], func(raw json.RawMessage) (bool, error) {
						var v serviceShown
						_ = json.Unmarshal(raw, &v)
						if v.State == string(core.StateFailed) || v.State == string(core.StateCanceled) {
							return true, fmt.Errorf("service %q could not be deleted: %s", args[0], v.Error)
						}
						return false, nil
					})
				})
				if !core.IsCode(err, core.CodeNotFound) {
					return err
				}
			}
			return s.done(map[string]string{"deleted": args[0]}, "Service %q of project %q is deleted.", args[0], p)
		},
	}
	s.projectFlag(c, &project)
	confirmFlag(c, &yes)
	c.Flags().BoolVar(&wait, "wait", false, "wait until it is gone")
	return c
}

func (s *session) servicesChange(verb, short, said string) *cobra.Command {
	var project string
	var wait bool
	c := &cobra.Command{
		Use: verb + " NAME", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := s.inProject(project, "service", args[0])
			if err != nil {
				return err
			}
			var v serviceShown
			if err := s.plain(c.Context(), http.MethodPost, servicePath(p, args[0])+"/"+verb, nil, nil, &v); err != nil {
				return err
			}
			if wait {
				if v, err = s.waitService(c.Context(), p, args[0]); err != nil {
					return err
				}
				return s.done(v, "Service %q of project %q is %s.", v.Name, p, strings.ToLower(v.status()))
			}
			return s.done(v, "Service %q of project %q is %s.", v.Name, p, said)
		},
	}
	s.projectFlag(c, &project)
	waitFlag(c, &wait)
	return c
}
