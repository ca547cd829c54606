package ankka_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/radial-project/radial/api/ankka/v1alpha1"
	"github.com/radial-project/radial/internal/ankkatest"
	"github.com/radial-project/radial/internal/clustertest"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	clustertest.Main(m)
}

const (
	limit   = ankkatest.Limit
	project = "shop"
)

var (
	providerUser = ankkatest.Provider
	operatorUser = ankkatest.Operator
	// nobody has no grant but those of every account.
	nobody = ankkatest.Account{Namespace: v1alpha1.Namespace(project), Name: "default"}
)

// cluster is the package's, with the namespace of a project.
func cluster(t *testing.T) *ankkatest.World {
	t.Helper()
	w := ankkatest.Start(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.Namespace(project)}}
	if err := w.Admin.Create(t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return w
}

// request is a request in which nothing is hidden by a client library.
func request(t *testing.T, c *rest.Config, method, path, contentType, accept, body string) (int, string) {
	t.Helper()
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.Host, "/")+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if accept == "" {
		accept = "application/json"
	}
	r.Header.Set("Accept", accept)
	res, err := h.Do(r)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(text)
}
