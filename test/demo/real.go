package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Images of the real node, which runs static programs of this machine and pulls nothing.
const (
	siteImage  = "example.test/todo:1"
	redisImage = "example.test/redis-standin:1"
)

// loadImages builds the demo's programs, gives them to the real node, and lets the local recipe for Redis use the
// one that stands in for it.
func loadImages(ctx context.Context, bin, dir string) error {
	build, err := os.MkdirTemp("", "radial-demo-images-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(build)
	for _, image := range []struct{ name, source string }{{siteImage, "./examples/demo/site"}, {redisImage, "./test/demo/standin"}} {
		program := filepath.Join(build, filepath.Base(image.source))
		if err := show(ctx, []string{"CGO_ENABLED=0"}, "go", "build", "-trimpath", "-o", program, image.source); err != nil {
			return err
		}
		if err := show(ctx, nil, filepath.Join(bin, "devcluster"), "load", image.name, program); err != nil {
			return err
		}
	}
	return radial(ctx, bin, dir, "recipe", "register", "default", "--resource-type", "Applications.Datastores/redisCaches",
		"--template-path", "file://"+filepath.Join(dir, "recipes", "redis.json"), "-p", "image="+redisImage)
}

// show runs a command and shows it; what it prints is shown only when it fails.
func show(ctx context.Context, env []string, program string, args ...string) error {
	line := strings.Join(append([]string{filepath.Base(program)}, args...), " ")
	fmt.Printf("\n  $ %s\n", line)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", line, err, out)
	}
	return nil
}
