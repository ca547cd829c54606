// Package realnode runs pods for real: kubelet, kube-proxy, containerd and runc, as root, in a process and a
// mount namespace of their own. The end of that namespace's first process is the end of every container and
// every mount; what is left of the machine's state (control groups, a bridge, packet filter rules, kernel
// settings) is recorded before it is touched and undone afterwards, by the next start if need be.
package realnode

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"text/template"
)

// What a machine has one of, and why it can have only one real node at a time.
const (
	NodeName = "real-0"
	bridge   = "devcluster0"
	podRange = "10.244.7.0/24"
	// Address is the node's own: the bridge's. A node's address may not be a loopback one.
	Address     = "10.244.7.1"
	addressBits = "24"
	cgroup      = "devcluster-node"

	kubeletPort      = 10260
	proxyHealthPort  = 10356
	proxyMetricsPort = 10349

	runDir     = "/run/devcluster-node" // sockets, which need a short path, and what ends with the node
	lockPath   = "/run/devcluster-node.lock"
	recordPath = "/run/devcluster-node.json" // what has to be undone
	cniPlugins = "/usr/lib/cni"

	pauseImage = "localhost/devcluster-pause:1"
)

// Socket is where containerd listens.
const Socket = runDir + "/containerd.sock"

//go:embed files
var files embed.FS

// Config describes the node of one cluster.
type Config struct {
	Data              string // directory for images, volumes and logs, kept between starts
	Programs          string // directory with kubelet, kube-proxy, containerd, its shim, ctr and pause
	CAFile            string // whose client certificates the kubelet accepts
	KubeletKubeconfig string
	ProxyKubeconfig   string
}

// Check says what is missing on this machine, before anything is touched.
func (c Config) Check() error {
	if os.Geteuid() != 0 {
		return errors.New("a real node needs root: containers and the packet filter do")
	}
	for _, name := range []string{"kubelet", "kube-proxy", "containerd", "containerd-shim-runc-v2", "ctr", "pause"} {
		if _, err := os.Stat(filepath.Join(c.Programs, name)); err != nil {
			return fmt.Errorf("a real node's %s is missing (make realnode builds it): %w", name, err)
		}
	}
	for _, name := range []string{"runc", "iptables", "ip"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("%w (make realnode installs runc and iptables; ip is in iproute2)", err)
		}
	}
	if _, err := os.Stat(filepath.Join(cniPlugins, "bridge")); err != nil {
		return fmt.Errorf("the CNI plugins are missing (make realnode installs them): %w", err)
	}
	return nil
}

// write makes the node's directories and configuration files.
func (c Config) write() error {
	if err := os.RemoveAll(runDir); err != nil {
		return err
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	values := map[string]any{
		"Data": c.Data, "Run": runDir, "Socket": Socket, "Programs": c.Programs, "Runc": runc, "CNIPlugins": cniPlugins,
		"PauseImage": pauseImage, "CAFile": c.CAFile, "Cgroup": cgroup, "Address": Address, "Bridge": bridge, "PodRange": podRange,
		"NodeName": NodeName, "ProxyKubeconfig": c.ProxyKubeconfig,
		"KubeletPort": kubeletPort, "ProxyHealthPort": proxyHealthPort, "ProxyMetricsPort": proxyMetricsPort,
	}
	for _, dir := range []string{c.Data, filepath.Join(c.Data, "kubelet"), filepath.Join(c.Data, "logs"), filepath.Join(runDir, "cni")} {
		if err := os.MkdirAll(dir, 0o711); err != nil {
			return err
		}
	}
	return fs.WalkDir(files, "files", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		t, err := template.ParseFS(files, path)
		if err != nil {
			return err
		}
		var content bytes.Buffer
		if err := t.Execute(&content, values); err != nil {
			return err
		}
		target := filepath.Join(runDir, entry.Name())
		if filepath.Ext(path) == ".conflist" {
			target = filepath.Join(runDir, "cni", entry.Name())
		}
		return os.WriteFile(target, content.Bytes(), 0o600)
	})
}
