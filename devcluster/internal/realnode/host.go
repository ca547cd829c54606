package realnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/radial-project/radial/devcluster/internal/state"
)

// Host is this machine's claim on the one real node that it can have.
type Host struct {
	lock     *os.File
	programs string
	report   func(format string, args ...any)
}

// record is what undo has to put back. It lies outside the state directory, so that it survives that.
type record struct {
	Sysctls map[string]string
}

// sysctls are the kernel settings that kubelet, kube-proxy and the bridge plugin change.
var sysctls = []string{
	"kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	"vm/overcommit_memory", "vm/panic_on_oom",
	"net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet",
}

// Claim takes the machine, waits for a node that is just dying, and undoes what one that was killed has left.
func Claim(programs string, report func(format string, args ...any)) (*Host, error) {
	lock, err := state.LockFile(lockPath)
	var locked *state.LockedError
	if errors.As(err, &locked) {
		return nil, fmt.Errorf("pid %d runs a real node, and a machine can have only one: stop that cluster first", locked.PID)
	}
	if err != nil {
		return nil, err
	}
	h := &Host{lock: lock, programs: programs, report: report}
	if _, err := os.Stat(recordPath); err == nil {
		report("undoing what an earlier real node left behind")
		if err := h.undo(); err != nil {
			return nil, errors.Join(err, lock.Close())
		}
	}
	return h, nil
}

// LockFile is to be inherited by the node's first process, so that the claim lasts as long as it does.
func (h *Host) LockFile() *os.File { return h.lock }

// Prepare changes the machine: after the record of what was there, control groups and the bridge.
func (h *Host) Prepare() error {
	chains, err := kubeChains()
	if err != nil {
		return err
	}
	if len(chains) > 0 {
		return errors.New("the packet filter has rules of another Kubernetes (chains KUBE-…): a real node would mix with it; use a machine without one")
	}
	r := record{Sysctls: map[string]string{}}
	for _, name := range sysctls {
		if b, err := os.ReadFile(filepath.Join("/proc/sys", name)); err == nil { // not every kernel has all
			r.Sysctls[name] = strings.TrimSpace(string(b))
		}
	}
	content, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := state.WriteFile(recordPath, content, 0o600); err != nil {
		return err
	}
	if err := makeCgroups(); err != nil {
		return fmt.Errorf("control groups: %w", err)
	}
	for _, args := range [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"addr", "add", Address + "/" + addressBits, "dev", bridge},
		{"link", "set", bridge, "up"},
	} {
		if err := command("ip", args...); err != nil {
			return err
		}
	}
	return nil
}

// Release puts the machine back as it was and gives the claim up. The node must have ended.
func (h *Host) Release() error {
	return errors.Join(h.undo(), h.lock.Close())
}

// undo can be repeated, and after Prepare failed half-way: what is not there needs no undoing.
func (h *Host) undo() error {
	content, err := os.ReadFile(recordPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var r record
	if err := json.Unmarshal(content, &r); err != nil {
		return fmt.Errorf("%s: %w", recordPath, err)
	}
	errs := []error{removeKubeChains()}
	if _, err := os.Stat("/sys/class/net/" + bridge); err == nil {
		errs = append(errs, command("ip", "link", "del", bridge))
	}
	errs = append(errs, removeCgroups())
	for name, value := range r.Sysctls {
		path := filepath.Join("/proc/sys", name)
		if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) != value {
			if err := os.WriteFile(path, []byte(value), 0); err != nil {
				errs = append(errs, fmt.Errorf("sysctl %s back to %s: %w", name, value, err))
			}
		}
	}
	errs = append(errs, os.RemoveAll(runDir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("undo the real node (the next start tries again): %w", err)
	}
	return os.Remove(recordPath)
}

// filters are the programs whose tables kube-proxy writes.
var filters = []string{"iptables", "ip6tables"}

// kubeChains lists the chains of kube-proxy and kubelet, as "program table chain".
func kubeChains() ([]string, error) {
	var out []string
	for _, program := range filters {
		rules, err := exec.Command(program + "-save").Output()
		if err != nil {
			if program == "ip6tables" { // a machine without IPv6
				continue
			}
			return nil, fmt.Errorf("%s-save: %w", program, err)
		}
		table := ""
		for line := range strings.SplitSeq(string(rules), "\n") {
			if name, ok := strings.CutPrefix(line, "*"); ok {
				table = name
			}
			if strings.HasPrefix(line, ":KUBE-") {
				out = append(out, program+" "+table+" "+strings.Fields(line)[0][1:])
			}
		}
	}
	return out, nil
}

// removeKubeChains deletes the rules that lead into those chains, then the chains.
func removeKubeChains() error {
	for _, program := range filters {
		rules, err := exec.Command(program + "-save").Output()
		if err != nil {
			continue // kubeChains below says what matters
		}
		table := ""
		for line := range strings.SplitSeq(string(rules), "\n") {
			if name, ok := strings.CutPrefix(line, "*"); ok {
				table = name
			}
			rule, ok := strings.CutPrefix(line, "-A ")
			if !ok || strings.HasPrefix(rule, "KUBE-") || !strings.Contains(rule, "-j KUBE-") {
				continue
			}
			args := append([]string{"-t", table, "-D"}, splitRule(rule)...)
			if err := command(program, args...); err != nil {
				return err
			}
		}
	}
	chains, err := kubeChains()
	if err != nil {
		return err
	}
	for _, flag := range []string{"-F", "-X"} { // all are emptied first: they lead into each other
		for _, c := range chains {
			f := strings.Fields(c)
			if err := command(f[0], "-t", f[1], flag, f[2]); err != nil {
				return err
			}
		}
	}
	return nil
}

// splitRule splits a rule of iptables-save into arguments; comments are quoted there.
func splitRule(rule string) []string {
	var args []string
	for i, part := range strings.Split(rule, `"`) {
		if i%2 == 1 {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	return args
}

// cgroupRoots are the directories in which the node's control group is made: one on version 2, one for each
// controller on version 1, and one in the hierarchy of version 2 that many machines mount beside those.
func cgroupRoots() ([]string, error) {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{root}, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, e := range entries {
		path := filepath.Join(root, e.Name())
		if info, err := os.Stat(path); err == nil && info.IsDir() && e.Type()&os.ModeSymlink == 0 {
			roots = append(roots, path)
		}
	}
	return roots, nil
}

func makeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		dir := filepath.Join(root, cgroup)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if filepath.Base(root) != "cpuset" {
			continue
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // a new cpuset has none and takes no process
			b, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, file), b, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

func removeCgroups() error {
	roots, err := cgroupRoots()
	if err != nil {
		return err
	}
	var errs []error
	for _, root := range roots {
		var dirs []string
		err := filepath.WalkDir(filepath.Join(root, cgroup), func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil // what is not there is gone already
		})
		errs = append(errs, err)
		slices.Reverse(dirs) // children first
		for _, dir := range dirs {
			if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
