package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/radial-project/radial/devcluster/internal/fakenode"
	"github.com/radial-project/radial/devcluster/internal/image"
	"github.com/radial-project/radial/devcluster/internal/realnode"
)

func fakeNode(args []string) error {
	cfg := fakenode.Config{Clock: clock.RealClock{}, Log: os.Stderr}
	fs := pflag.NewFlagSet("fake-node", pflag.ContinueOnError)
	kubeconfig := fs.String("kubeconfig", "", "how to reach the API server (needed)")
	fs.IntVar(&cfg.Nodes, "nodes", 1, "how many nodes to be: fake-0, fake-1, ...")
	fs.BoolVar(&cfg.Untaint, "untaint", false, "take the not-ready taint away, for a cluster without controller manager")
	if _, err := parse(fs, args, `Stands in for kubelets: its nodes are Ready, and pods bound to them reach Running and Ready at once. Annotations
on a pod change that: fakenode/fate is crash, image, never, succeed or fail; fakenode/ready-after is a
duration for which the pod runs without being ready. `+"`devcluster up`"+` runs this by itself.`); err != nil {
		return err
	}
	rc, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	rc.QPS = -1 // the API server's own priority and fairness suffices
	if cfg.Client, err = kubernetes.NewForConfig(rc); err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	if err := fakenode.Run(ctx, cfg); err != nil && ctx.Err() == nil {
		return err
	}
	return nil
}

func realNode(args []string) error {
	const first = "--first-process"
	var cfg realnode.Config
	fs := pflag.NewFlagSet("real-node", pflag.ContinueOnError)
	isFirst := fs.Bool(first[2:], false, "be the first process of new namespaces and run the rest as a child")
	fs.StringVar(&cfg.Data, "data", "", "directory for images, volumes and logs (needed)")
	fs.StringVar(&cfg.Programs, "programs", "", "directory with the node's programs (needed)")
	fs.StringVar(&cfg.CAFile, "ca", "", "authority of the kubelet's clients (needed)")
	fs.StringVar(&cfg.KubeletKubeconfig, "kubelet-kubeconfig", "", "the kubelet's identity (needed)")
	fs.StringVar(&cfg.ProxyKubeconfig, "proxy-kubeconfig", "", "kube-proxy's identity (needed)")
	if _, err := parse(fs, args, "Runs kubelet, kube-proxy and containerd. `devcluster up --node real` starts it where it belongs: in namespaces of its own."); err != nil {
		return err
	}
	if *isFirst {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == first })
		code, err := realnode.Init(self, append([]string{"real-node"}, rest...))
		if err == nil && code != 0 {
			err = fmt.Errorf("the node's supervisor ended with exit status %d", code)
		}
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	return realnode.Run(ctx, cfg, os.Stdout)
}

// load makes an image of a local program and hands it to the real node.
func load(args []string) error {
	fs := pflag.NewFlagSet("load", pflag.ContinueOnError)
	given, err := parse(fs, args, `Makes an image IMAGE of one layer, with the statically linked program FILE as its entry point, and hands it
to the real node of this machine. Neither an engine nor a registry takes part. Pods that name the image need
imagePullPolicy: IfNotPresent or Never.`, "IMAGE", "FILE")
	if err != nil {
		return err
	}
	if _, err := os.Stat(realnode.Socket); err != nil {
		return errors.New("no real node runs on this machine (devcluster up --node real starts one)")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	entry := "/" + filepath.Base(given[1])
	return realnode.Load(ctx, filepath.Join(filepath.Dir(self), "realnode"), image.Spec{
		Name: given[0], Files: map[string]string{entry: given[1]}, Entrypoint: []string{entry}})
}
