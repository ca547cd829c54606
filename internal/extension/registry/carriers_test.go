package registry

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"

	"github.com/radial-project/radial/internal/clustertest"
	"github.com/radial-project/radial/internal/core"
	"github.com/radial-project/radial/internal/extension"
	"github.com/radial-project/radial/internal/extension/kubernetes"
)

// side is one kind of target with the same resource in its own words.
type side struct {
	// here is the target, anew with each call: nothing is remembered.
	here func(t *testing.T) extension.Target
	// elsewhere is what the same configuration leads to once another place stands
	// behind it, with a resource of the same name in it that nobody deleted.
	elsewhere func(t *testing.T) extension.Target
	resource  func(content string) extension.Resource
	// content reads a state's content.
	content func(extension.State) string
	// stands looks at the place itself; there is none is false.
	stands func(t *testing.T) (content string, ok bool)
}

// One scenario, over everything that carries the contract.
func TestCarriers_S47(t *testing.T) {
	for name, build := range map[string]func(t *testing.T) side{
		"Kubernetes in process": kubernetesSide,
		"HTTP":                  func(t *testing.T) side { return filesSide(t, overHTTP) },
		"gRPC":                  func(t *testing.T) side { return filesSide(t, overGRPC) },
	} {
		t.Run("S-47 "+name, func(t *testing.T) {
			t.Parallel()
			scenario(t, build(t))
		})
	}
}

func scenario(t *testing.T, s side) {
	ctx := t.Context()
	must := func(state extension.State, err error) extension.State {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return state
	}

	// A preview names the resource and makes nothing.
	preview := must(s.here(t).Preview(ctx, s.resource("one")))
	if _, ok := s.stands(t); ok {
		t.Fatal("a preview made the resource")
	}
	if preview.Ref.UID != "" || preview.Ref.ID.IsZero() || len(preview.Ref.Identifiers) == 0 || s.content(preview) != "one" {
		t.Errorf("preview: %+v", preview)
	}
	if _, err := s.here(t).Get(ctx, preview.Ref); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("get of what was only previewed: %v, want NotFound", err)
	}
	if err := s.here(t).Delete(ctx, preview.Ref); err != nil {
		t.Errorf("delete of what was only previewed: %v", err)
	}

	// Create, then the same again: the same resource.
	made := must(s.here(t).Apply(ctx, s.resource("one")))
	if got, _ := s.stands(t); got != "one" || s.content(made) != "one" {
		t.Errorf("made %q, answered %q", got, s.content(made))
	}
	if !made.Ref.ID.Equal(preview.Ref.ID) || string(made.Ref.Identifiers) != string(preview.Ref.Identifiers) || made.Ref.UID == "" || made.Ref.ConfigID == "" && preview.Ref.ConfigID != "" {
		t.Errorf("previewed %+v, made %+v", preview.Ref, made.Ref)
	}
	again := must(s.here(t).Apply(ctx, s.resource("one")))
	if !again.Ref.ID.Equal(made.Ref.ID) || again.Ref.UID != made.Ref.UID {
		t.Errorf("made anew: %+v, then %+v", made.Ref, again.Ref)
	}

	// Update, and get by what is recorded.
	must(s.here(t).Apply(ctx, s.resource("two")))
	raw, err := json.Marshal(made.Ref)
	if err != nil {
		t.Fatal(err)
	}
	var recorded extension.Ref
	if err := json.Unmarshal(raw, &recorded); err != nil {
		t.Fatal(err)
	}
	if got := must(s.here(t).Get(ctx, recorded)); s.content(got) != "two" || got.Ref.UID != made.Ref.UID {
		t.Errorf("got %q of %+v", s.content(got), got.Ref)
	}

	// Another place behind the same configuration: nothing is deleted (S-32).
	if recorded.ConfigID == "" {
		if recorded.ConfigID, err = s.here(t).ConfigID(ctx); err != nil {
			t.Fatal(err)
		}
	}
	func() {
		other := s.elsewhere(t)
		if err := other.Delete(ctx, recorded); !core.IsCode(err, extension.CodeWrongTarget) {
			t.Errorf("delete in another place: %v, want %s", err, extension.CodeWrongTarget)
		}
	}()
	if _, ok := s.stands(t); !ok {
		t.Fatal("the resource of another place was deleted")
	}

	// The right place: it goes, and once more is no error (S-30).
	back := s.here(t)
	for range 2 {
		if err := back.Delete(ctx, recorded); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := s.stands(t); ok {
		t.Error("it still stands after its deletion")
	}
	if _, err := s.here(t).Get(ctx, recorded); !core.IsCode(err, core.CodeNotFound) {
		t.Errorf("get after deletion: %v", err)
	}
}

func kubernetesSide(t *testing.T) side {
	cluster, second := clustertest.Start(t), clustertest.Second(t)
	connect := func(c *clustertest.Cluster) (*kubernetes.Cluster, clientset.Interface) {
		made, err := kubernetes.New("local", c.Config, kubernetes.Options{})
		if err != nil {
			t.Fatal(err)
		}
		client, err := clientset.NewForConfig(c.Config)
		if err != nil {
			t.Fatal(err)
		}
		return made, client
	}
	here, client := connect(cluster)
	other, _ := connect(second)
	namespace := cluster.Namespace(t, "carriers")
	return side{
		here:      func(*testing.T) extension.Target { return here.Target(namespace) },
		elsewhere: func(*testing.T) extension.Target { return other.Target(namespace) },
		resource: func(content string) extension.Resource {
			return extension.Resource{Type: "core/ConfigMap", APIVersion: "v1", Properties: map[string]any{
				"metadata": map[string]any{"name": "note"}, "data": map[string]any{"content": content}}}
		},
		content: func(s extension.State) string {
			data, _ := s.Properties["data"].(map[string]any)
			text, _ := data["content"].(string)
			return text
		},
		stands: func(t *testing.T) (string, bool) {
			o, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "note", metav1.GetOptions{})
			if err != nil {
				return "", false
			}
			return o.Data["content"], true
		},
	}
}

type carrierOf func(t *testing.T, base string) Registration

func overHTTP(t *testing.T, base string) Registration {
	return Registration{Name: "Files", Version: "1.0.0", URL: serveHTTP(t, program, "FILES_BASE="+base)}
}

func overGRPC(_ *testing.T, base string) Registration {
	return Registration{Name: "Files", Version: "1.0.0", Path: program, Env: map[string]string{"FILES_BASE": base}}
}

func filesSide(t *testing.T, carrier carrierOf) side {
	base := t.TempDir()
	dir := filepath.Join(base, "notes")
	markDirectory(t, dir, "")
	x := newRegistry(t, Options{}, carrier(t, base))
	at := func(t *testing.T) extension.Target {
		return target(t, x, extension.Scope{Extension: "files", Version: "1.0.0", Config: `{"directory":"notes"}`}, nil)
	}
	swapped := false
	swap := func(t *testing.T, from, to string) {
		t.Helper()
		if err := errors.Join(os.Rename(dir, from), os.Rename(to, dir)); err != nil {
			t.Fatal(err)
		}
		swapped = !swapped
	}
	aside, other := filepath.Join(base, "aside"), filepath.Join(base, "other")
	return side{
		here: func(t *testing.T) extension.Target {
			if swapped { // back to where it was made
				swap(t, other, aside)
			}
			return at(t)
		},
		elsewhere: func(t *testing.T) extension.Target {
			markDirectory(t, other, "")
			if err := os.MkdirAll(filepath.Join(other, "a"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(other, "a", "b.txt"), []byte("somebody's"), 0o600); err != nil {
				t.Fatal(err)
			}
			swap(t, aside, other)
			return at(t)
		},
		resource: func(content string) extension.Resource {
			return extension.Resource{Type: "File", Properties: map[string]any{"path": "a/b.txt", "content": content}}
		},
		content: func(s extension.State) string { text, _ := s.Properties["content"].(string); return text },
		stands: func(t *testing.T) (string, bool) {
			raw, err := os.ReadFile(filepath.Join(dir, "a", "b.txt"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
			return string(raw), err == nil
		},
	}
}

// A resource that takes its time is waited for.
func TestLongRunning_S47(t *testing.T) {
	for name, carrier := range map[string]carrierOf{"HTTP": overHTTP, "gRPC": overGRPC} {
		t.Run("S-47 "+name, func(t *testing.T) {
			t.Parallel()
			base := t.TempDir()
			markDirectory(t, filepath.Join(base, "notes"), "")
			var p pauses
			x := newRegistry(t, Options{Sleep: p.sleep}, carrier(t, base))
			to := target(t, x, extension.Scope{Extension: "Files", Config: `{"directory":"notes"}`}, nil)
			for _, name := range []string{"logs/a.txt", "logs/b.txt"} {
				if _, err := to.Apply(t.Context(), extension.Resource{Type: "File", Properties: map[string]any{"path": name, "content": strings.Repeat(name, 1000)}}); err != nil {
					t.Fatal(err)
				}
			}
			s, err := to.Apply(t.Context(), extension.Resource{Type: "Archive", Properties: map[string]any{"path": "logs.tgz", "folder": "logs"}})
			if err != nil {
				t.Fatal(err)
			}
			if s.Properties["folder"] != "logs" {
				t.Errorf("what was packed is not read back: %v", s.Properties)
			}
			if size, _ := s.Properties["size"].(int64); size == 0 {
				t.Errorf("the archive has no size: %+v", s.Properties)
			}
			if len(p.list) == 0 {
				t.Error("nothing was waited for: the archive was answered as on its way")
			}
			if info, err := os.Stat(filepath.Join(base, "notes", "logs.tgz")); err != nil || info.Size() == 0 {
				t.Errorf("%v, %v", info, err)
			}
			_, err = to.Apply(t.Context(), extension.Resource{Type: "Archive", Properties: map[string]any{"path": "x.tgz", "folder": "nowhere"}})
			if !core.IsCode(err, extension.CodeRefused) || !strings.Contains(err.Error(), "properties.folder") || !strings.Contains(err.Error(), "the extension Files cannot create or update Archive") {
				t.Errorf("a refusal names resource, extension and property: %v", err)
			}
			if err := to.Delete(t.Context(), s.Ref); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is known of a resource is previewed without the rest.
func TestPreviewOfParts(t *testing.T) {
	base := t.TempDir()
	markDirectory(t, filepath.Join(base, "notes"), "")
	r := extension.Resource{Type: "File", Properties: map[string]any{"path": "a.txt"}, Unevaluated: []string{"/content"}}
	scope := extension.Scope{Extension: "Files", Config: `{"directory":"notes"}`}

	s, err := target(t, newRegistry(t, Options{}, overHTTP(t, base)), scope, nil).Preview(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Properties["content"]; ok || s.Properties["path"] != "a.txt" || s.About == nil || len(s.About.Unevaluated) != 1 || s.About.Unevaluated[0] != "/content" {
		t.Errorf("%+v, %+v", s.Properties, s.About)
	}
	r.Properties, r.Unevaluated = map[string]any{"content": "x"}, []string{"/path"}
	if _, err := target(t, newRegistry(t, Options{}, overHTTP(t, base)), scope, nil).Preview(t.Context(), r); !core.IsCode(err, extension.CodePreviewNotSupported) {
		t.Errorf("without its name: %v, want %s", err, extension.CodePreviewNotSupported)
	}
	// The local-deploy messages cannot say what is missing.
	if _, err := target(t, newRegistry(t, Options{}, overGRPC(t, base)), scope, nil).Preview(t.Context(), r); !core.IsCode(err, extension.CodePreviewNotSupported) {
		t.Errorf("over gRPC: %v, want %s", err, extension.CodePreviewNotSupported)
	}
}
