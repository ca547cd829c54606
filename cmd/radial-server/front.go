package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/radial-project/radial/internal/auth/front"
	"github.com/radial-project/radial/internal/core"
)

// door is what stands before the API: nothing in developer mode.
type door struct{ *front.Front }

func openFront(ctx context.Context, c options, d front.Deps) (door, error) {
	if c.front.Developer() {
		d.Log.Warn("developer mode: the API is open to every program of this machine, without TLS and without authentication")
		return door{}, nil
	}
	klog.SetSlogLogger(d.Log) // the libraries that follow the cluster's trust log by it
	if c.hasCluster() {
		// Without a kubeconfig, the cluster that the pod runs in.
		config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			return door{}, fmt.Errorf("the cluster to authenticate by cannot be used: %w", err)
		}
		config = rest.AddUserAgent(config, "radial-server/"+core.Version)
		config.QPS = -1 // every call is bounded by caches, and a queue here would hold up requests
		d.Cluster = config
	}
	f, err := c.front.Open(ctx, d)
	return door{f}, err
}

func (d door) before(h http.Handler) http.Handler {
	if d.Front == nil {
		return h
	}
	return d.Handler(h)
}

func (d door) scheme() string {
	if d.Front == nil {
		return "http"
	}
	return "https"
}

func (d door) serve(web *http.Server, l net.Listener) error {
	if d.Front == nil {
		return web.Serve(l)
	}
	web.TLSConfig = d.TLS()
	return web.ServeTLS(l, "", "")
}

// close writes the rest of the audit log.
func (d door) close(timeout time.Duration) error {
	if d.Front == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return d.Front.Close(ctx)
}
