package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/radial-project/radial/devcluster/internal/image"
	"github.com/radial-project/radial/devcluster/internal/process"
)

// containerdLimit bounds the start of containerd, which takes well under a second.
const containerdLimit = time.Minute

// Init is the first process of the node's namespaces: it starts the rest, hands signals on, and reaps what
// containers leave behind. When it ends, the kernel ends everything else in its namespace.
func Init(self string, args []string) (int, error) {
	syscall.CloseOnExec(3) // the claim on the machine is this process's, not its children's
	// Mounts made here stay here, and those of the machine still arrive.
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SLAVE, ""); err != nil {
		return 1, fmt.Errorf("mount namespace: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", syscall.MS_NOSUID|syscall.MS_NOEXEC|syscall.MS_NODEV, ""); err != nil {
		return 1, fmt.Errorf("mount /proc: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	child, err := os.StartProcess(self, append([]string{self}, args...), &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{nil, os.Stdout, os.Stderr}})
	if err != nil {
		return 1, err
	}
	go func() {
		for range signals {
			_ = child.Signal(syscall.SIGTERM)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1, err
		case pid == child.Pid && status.Signaled():
			return 1, fmt.Errorf("the node's supervisor was ended by %s", status.Signal())
		case pid == child.Pid:
			return status.ExitStatus(), nil
		}
	}
}

// Run supervises the node's programs until ctx ends. It runs inside the namespaces that Init made.
func Run(ctx context.Context, c Config, out io.Writer) error {
	if err := c.write(); err != nil {
		return err
	}
	report := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	sup := process.New(process.Config{Logs: filepath.Join(c.Data, "logs"), Report: report, Backoff: process.DefaultBackoff, Patience: 5})
	defer sup.Shutdown()
	program := func(name string) string { return filepath.Join(c.Programs, name) }

	containerd, err := sup.Start(process.Spec{Name: "containerd", Path: program("containerd"), Args: []string{"--config", filepath.Join(runDir, "containerd.toml")}, Notify: true})
	if err != nil {
		return err
	}
	timer := time.NewTimer(containerdLimit)
	defer timer.Stop()
	select {
	case <-containerd.Ready():
	case <-timer.C:
		return fmt.Errorf("containerd did not say within %s that it serves", containerdLimit)
	case err := <-sup.Failed():
		return err
	case <-ctx.Done():
		return nil
	}
	if err := Load(ctx, c.Programs, image.Spec{Name: pauseImage, Files: map[string]string{"/pause": program("pause")}, Entrypoint: []string{"/pause"}}); err != nil {
		return err
	}
	for _, spec := range []process.Spec{
		{Name: "kubelet", Path: program("kubelet"), Args: []string{
			"--config=" + filepath.Join(runDir, "kubelet.yaml"), "--kubeconfig=" + c.KubeletKubeconfig,
			"--hostname-override=" + NodeName, "--node-ip=" + Address,
			"--root-dir=" + filepath.Join(c.Data, "kubelet"), "--cert-dir=" + filepath.Join(runDir, "kubelet-pki")}},
		{Name: "kube-proxy", Path: program("kube-proxy"), Args: []string{"--config=" + filepath.Join(runDir, "kube-proxy.yaml")}},
	} {
		if _, err := sup.Start(spec); err != nil {
			return err
		}
	}
	select {
	case err := <-sup.Failed():
		return err
	case <-ctx.Done():
		return nil
	}
}

// Load makes an image of local files and hands it to the node's containerd: an image without an engine and
// without a registry.
func Load(ctx context.Context, programs string, spec image.Spec) error {
	read, write := io.Pipe()
	go func() { write.CloseWithError(spec.Write(write)) }()
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "ctr"), "--address", Socket, "--namespace", "k8s.io", "images", "import", "-")
	cmd.Stdin = read
	out, err := cmd.CombinedOutput()
	read.Close()
	if err != nil {
		return fmt.Errorf("load image %s: %w: %s", spec.Name, err, out)
	}
	return nil
}
